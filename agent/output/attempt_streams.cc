#include "agent/output/attempt_streams.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/output/pty.h"
#include "agent/output/stream_plan.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

constexpr size_t kPipeDefault = size_t{64} << 10;
constexpr size_t kPipeMax = size_t{1} << 20;
// A user's pipes may hold 64 MiB together (fs.pipe-user-pages-soft, pipe(7)); beyond that every new
// pipe of that user gets only one or two pages. Stay far below.
constexpr size_t kPipesTotal = size_t{16} << 20;

// Small, because every byte of stdout is copied into it.
constexpr size_t kBothBytesMax = size_t{16} << 10;

// Limits of one stream (10,000 lines of 200 bytes), and of all streams of the node.
constexpr size_t kKeptBytesMax = size_t{2} << 20;
constexpr size_t kKeptBytesOfNode = size_t{64} << 20;

tl::unexpected<Error> worker_pipe_error(int error, size_t workers) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  if (error != EMFILE) {
    return fail(ExitCode::environment,
                fmt::format("cannot open the output pipes of {}: {}; close other programs "
                            "or raise the system's limit (fs.file-max)",
                            counted(workers, "worker"), std::strerror(error)));
  }
  return fail(ExitCode::environment,
              fmt::format("cannot open the output pipes of {}: the limit of {} open files "
                          "is too low; raise it (ulimit -n)",
                          counted(workers, "worker"), limit.rlim_cur));
}

// Larger pipes mean fewer wake-ups. Each pipe grows up to its share of kPipesTotal.
void grow_pipe(int fd, size_t workers) {
  const size_t share = std::min(kPipeMax, kPipesTotal / (2 * std::max<size_t>(workers, 1)));
  if (share > kPipeDefault) ::fcntl(fd, F_SETPIPE_SZ, static_cast<int>(share));
}

Result<StreamEnds> open_worker_pipe(size_t workers) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return worker_pipe_error(errno, workers);
  StreamEnds ends{UniqueFd(fds[0]), UniqueFd(fds[1])};
  grow_pipe(fds[0], workers);
  return ends;
}

// The read end has its own open file description, so the worker's end stays blocking.
void make_nonblocking(int fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

// Leaves our end empty if the worker writes to its log file itself.
Result<StreamEnds> open_ends(const StreamPlan& plan, const std::string& log, Console& console,
                             size_t workers) {
  if (plan.direct()) {
    auto file = open_log(log);
    if (!file) return tl::unexpected(file.error());
    return StreamEnds{UniqueFd(), std::move(*file)};
  }
  auto ends = plan.terminal ? open_pty(console.fd()) : open_worker_pipe(workers);
  if (ends) make_nonblocking(ends->ours.get());
  return ends;
}

const char* stream_name(Streams stream) {
  return stream == Streams::err ? "stderr" : "stdout";
}

// The file exists whenever its flag is given, even if no line ever matches.
Result<std::shared_ptr<Sink>> open_filtered(const AttemptPlace& place, Streams stream) {
  if (place.folder.empty() || place.options->log.filters(stream).empty()) return nullptr;
  const std::string path = fmt::format("{}/filtered_{}.log", place.folder, stream_name(stream));
  auto file = open_log(path);
  if (!file) return tl::unexpected(file.error());
  return std::make_shared<Sink>(std::move(*file), path);
}

class StreamOpener {
 public:
  StreamOpener(const AttemptPlace& place, size_t workers) : place_(place), workers_(workers) {}

  Result<void> open_filtered_files() {
    for (const Streams stream : {Streams::out, Streams::err}) {
      auto filtered = open_filtered(place_, stream);
      if (!filtered) return tl::unexpected(filtered.error());
      filtered_[stream] = std::move(*filtered);
    }
    return {};
  }

  Result<void> open_worker(int local_rank, int rank, OpenedAttempt& all) {
    facts_ = {place_.options->role, place_.options->hostname, rank,
              place_.options->first_local_rank + local_rank};
    WorkerEnds& ours = all.ours.emplace_back();
    WorkerStreams& theirs = all.theirs.emplace_back();
    ours.both = std::make_shared<TailBuffer>(kBothBytesMax);
    if (auto out = open_stream(Streams::out, ours, ours.out, theirs.out); !out) return out;
    if (auto err = open_stream(Streams::err, ours, ours.err, theirs.err); !err) return err;
    theirs.out_log = ours.out.log;
    theirs.err_log = ours.err.log;
    if (place_.folder.empty()) return {};
    theirs.error_file = worker_path("error.json");
    return {};
  }

 private:
  std::string worker_path(std::string_view name) const {
    return fmt::format("{}/{}/{}", place_.folder, facts_.local_rank, name);
  }

  Result<void> open_stream(Streams stream, const WorkerEnds& worker, WorkerEnd& ours,
                           UniqueFd& theirs) {
    const LogSpec& log = place_.options->log;
    Console& console = stream == Streams::err ? *place_.err : *place_.out;
    const StreamPlan plan =
        plan_stream(log, {stream, facts_.local_rank, facts_.rank, console.is_terminal()});
    if (plan.to_file) ours.log = worker_path(fmt::format("{}.log", stream_name(stream)));
    auto ends = open_ends(plan, ours.log, console, workers_);
    if (!ends) return tl::unexpected(ends.error());
    theirs = std::move(ends->theirs);
    if (plan.direct()) return {};
    StreamParts parts;
    parts.is_err = stream == Streams::err;
    parts.terminal = plan.terminal;
    parts.both = worker.both;
    parts.meter = std::make_shared<ReadMeter>(std::move(ends->ours));
    if (plan.to_console) parts.console = &console;
    if (plan.filtered) parts.filtered = filtered_[stream];
    if (plan.filtered) parts.needles = log.filters(stream);
    if (plan.prefix == ConsolePrefix::tee) parts.prefix = tee_prefix(log.prefix_template, facts_);
    if (plan.prefix == ConsolePrefix::log_prefix) {
      parts.prefix = log_prefix(log.prefix, facts_);
      parts.timed_prefix = contains(parts.prefix, kTimePlaceholder);
    }
    if (plan.to_file) {
      auto file = open_log(ours.log);
      if (!file) return tl::unexpected(file.error());
      parts.file = std::make_unique<Sink>(std::move(*file), ours.log);
    } else if (!place_.folder.empty()) {
      parts.keep_path = worker_path(fmt::format("{}_tail.log", stream_name(stream)));
      parts.keep_bytes = std::min(kKeptBytesMax, kKeptBytesOfNode / (2 * workers_));
    }
    ours.stream = std::make_unique<WorkerStream>(std::move(parts));
    return {};
  }

  const AttemptPlace& place_;
  size_t workers_;
  std::map<Streams, std::shared_ptr<Sink>> filtered_;
  PrefixFacts facts_;
};

}  // namespace

Result<OpenedAttempt> open_attempt_streams(const AttemptPlace& place,
                                           const std::vector<int>& ranks) {
  StreamOpener opener(place, ranks.size());
  auto opened = opener.open_filtered_files();
  OpenedAttempt all;
  for (size_t i = 0; i < ranks.size() && opened; i++)
    opened = opener.open_worker(static_cast<int>(i), ranks[i], all);
  if (!opened) return tl::unexpected(opened.error());
  return all;
}

}  // namespace muster
