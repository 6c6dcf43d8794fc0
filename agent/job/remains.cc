#include "agent/job/remains.h"

#include <algorithm>
#include <csignal>
#include <optional>
#include <utility>

#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <sys/stat.h>

#include "agent/output/log_tree.h"
#include "agent/report/last_words.h"

namespace muster {
namespace {

constexpr size_t kErrorFileBytesMax = 1 << 20;

struct LeftFile {
  std::string content;
  WallTime written;
};

// Runs on the output thread, which may wait for a disk but must not block for ever: a worker may
// have replaced its error file with a FIFO, or with a link to a file that must not be read.
std::optional<LeftFile> read_left_file(const std::string& path, size_t bytes_max) {
  if (path.empty()) return std::nullopt;
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  struct stat info{};
  if (!fd || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return LeftFile{read_up_to(fd.get(), bytes_max), changed_at(info)};
}

WorkerRemains collect_remains(WorkerPrinted printed, const WorkerTraces& files) {
  WorkerRemains remains;
  remains.printed = std::move(printed);
  if (auto error = read_left_file(files.error_file, kErrorFileBytesMax)) {
    remains.error_file = std::move(error->content);
    remains.error_file_written = error->written;
  }
  return remains;
}

}  // namespace

Remains::Remains(boost::asio::io_context& io, JobRecorder& record, Output& output,
                 const Rings& rings, const JobFolders& folders, const std::string& executable)
    : io_(io),
      record_(record),
      output_(output),
      rings_(rings),
      folders_(folders),
      comm_(executable.substr(executable.rfind('/') + 1).substr(0, 15)) {}

void Remains::begin_attempt() {
  oom_.snapshot();
  process_limits_.snapshot();
  kernel_log_.mark();
}

// The output thread gathers the rest, now, while it is fresh: a core folder may be on a disk that
// hangs. Requests are answered in order, so the answer precedes the end of read().
HostEvidence Remains::gather(const WorkerExit& exit) {
  EvidenceRequest request;
  request.pid = exit.pid;
  request.signal = exit.status.kind == ExitStatus::Kind::signaled ? exit.status.value : 0;
  request.core_dumped = exit.status.core_dumped;
  request.comm = comm_;
  request.cwd = folders_.cwd;
  request.kernel_log = &kernel_log_;
  output_.perform([this, request] {
    boost::asio::post(io_, [this, pid = request.pid, evidence = gather_evidence(request)] {
      record_.add_evidence(pid, evidence);
    });
  });
  HostEvidence evidence = memory();
  evidence.limits = exit.limits;
  evidence.process_limit = process_limits_.met(exit.limits.processes);
  return evidence;
}

HostEvidence Remains::memory() const {
  HostEvidence evidence;
  oom_.fill(evidence);
  return evidence;
}

bool Remains::may_be_victim(const WorkerExit& exit) const {
  if (exit.status.killed_by(SIGABRT) || exit.status.killed_by(SIGPIPE)) return true;
  const RingReader* const ring = rings_.reader(exit.local_rank);
  if (ring == nullptr || exit.status.kind != ExitStatus::Kind::exited) return false;
  const std::optional<Departure> departure = ring->departure(exit.pid);
  if (departure && blame_in(departure->error)) return true;
  const std::optional<FailureRecord> library = ring->reported();
  return library && std::ranges::find(library->origin, library->rank) == library->origin.end();
}

void Remains::read(bool keep, const std::vector<WorkerTraces>& traces,
                   std::function<void(const AttemptRemains&)> done) {
  output_.drain(
      keep, [this, traces, folders = folders_.run, done = std::move(done)](DrainReport report) {
        AttemptRemains remains;
        for (size_t i = 0; i < report.workers.size(); ++i) {
          remains.workers.push_back(collect_remains(
              std::move(report.workers[i]), i < traces.size() ? traces[i] : WorkerTraces{}));
        }
        EvidenceRequest disk;
        disk.log_dir = folders.run_dir;
        remains.full_log_disk = gather_evidence(disk).full_log_disk;
        boost::asio::post(io_, [this, done, remains = std::move(remains)]() mutable {
          for (size_t i = 0; i < remains.workers.size(); ++i) {
            const RingReader* const ring = rings_.reader(static_cast<int>(i));
            if (ring != nullptr) remains.workers[i].library = ring->reported();
          }
          done(remains);
        });
      });
}

}  // namespace muster
