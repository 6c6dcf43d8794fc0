#include "agent/output/attempt_streams.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/output/log_tree.h"
#include "agent/output/pty.h"

namespace muster {

namespace {

constexpr size_t kPipeDefault = size_t{64} << 10;
constexpr size_t kPipeMax = size_t{1} << 20;
// A user's pipes may hold 64 MiB together (fs.pipe-user-pages-soft, pipe(7)); beyond that every new
// pipe of that user gets only one or two pages. Stay far below.
constexpr size_t kPipesTotal = size_t{16} << 20;

// Small, because every byte of stdout is copied into it.
constexpr size_t kBothBytesMax = size_t{16} << 10;

// Per stream: 10,000 lines of 200 bytes. And for all streams of the node.
constexpr size_t kKeptBytesMax = size_t{2} << 20;
constexpr size_t kKeptBytesOfNode = size_t{64} << 20;

struct FilteredFiles {
  std::shared_ptr<Sink> out;
  std::shared_ptr<Sink> err;
};

struct StreamEnds {
  UniqueFd ours;  // None if the worker writes to its log file itself.
  UniqueFd theirs;
};

tl::unexpected<Error> worker_pipe_error(int error, size_t workers) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  if (error != EMFILE) {
    return fail(ExitCode::environment,
                fmt::format("cannot open the output pipes of {} workers: {}; close other programs "
                            "or raise the system's limit (fs.file-max)",
                            workers, std::strerror(error)));
  }
  return fail(ExitCode::environment,
              fmt::format("cannot open the output pipes of {} workers: the limit of {} open files "
                          "is too low; raise it (ulimit -n)",
                          workers, limit.rlim_cur));
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

Result<StreamEnds> open_terminal(int like_fd) {
  auto pty = open_pty(like_fd);
  if (!pty) return tl::unexpected(pty.error());
  return StreamEnds{std::move(pty->master), std::move(pty->slave)};
}

// The read end has its own open file description, so the worker's end stays blocking.
void make_nonblocking(int fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

Result<StreamEnds> open_ends(const StreamPlan& plan, const std::string& log, Console& console,
                             size_t workers) {
  if (plan.direct()) {
    auto file = open_log(log);
    if (!file) return tl::unexpected(file.error());
    return StreamEnds{UniqueFd(), std::move(*file)};
  }
  auto ends = plan.terminal ? open_terminal(console.fd()) : open_worker_pipe(workers);
  if (ends) make_nonblocking(ends->ours.get());
  return ends;
}

Result<std::shared_ptr<Sink>> open_filtered(const std::string& path) {
  auto file = open_log(path);
  if (!file) return tl::unexpected(file.error());
  return std::make_shared<Sink>(std::move(*file), path);
}

// The files exist whenever their flag is given, even if no line ever matches.
Result<FilteredFiles> open_filtered_files(const AttemptPlace& place) {
  FilteredFiles files;
  if (place.folder.empty()) return files;
  if (!place.options->log.duplicate_stdout_filters.empty()) {
    auto out = open_filtered(place.folder + "/filtered_stdout.log");
    if (!out) return tl::unexpected(out.error());
    files.out = *out;
  }
  if (!place.options->log.duplicate_stderr_filters.empty()) {
    auto err = open_filtered(place.folder + "/filtered_stderr.log");
    if (!err) return tl::unexpected(err.error());
    files.err = *err;
  }
  return files;
}

// Opens the streams of one attempt one after the other.
class StreamOpener {
 public:
  StreamOpener(const AttemptPlace& place, FilteredFiles filtered, size_t workers)
      : place_(place), filtered_(std::move(filtered)), workers_(workers) {}

  Result<void> open_worker(int local_rank, int rank, OpenedAttempt& all) {
    const OutputOptions& options = *place_.options;
    facts_ = {options.role, options.hostname, rank, local_rank};
    WorkerEnds ours;
    WorkerStreams theirs;
    both_ = ours.both = std::make_shared<TailBuffer>(kBothBytesMax);
    if (auto out = open_stream(Streams::out, ours.out, theirs.out, theirs.out_log); !out)
      return out;
    if (auto err = open_stream(Streams::err, ours.err, theirs.err, theirs.err_log); !err)
      return err;
    if (!place_.folder.empty()) {
      theirs.error_file = worker_path("error.json");
      theirs.failure_file = worker_path("failure.txt");
    }
    ours.out_log = theirs.out_log;
    ours.err_log = theirs.err_log;
    all.ours.push_back(std::move(ours));
    all.theirs.push_back(std::move(theirs));
    return {};
  }

 private:
  std::string worker_path(const char* name) const {
    return fmt::format("{}/{}/{}", place_.folder, facts_.local_rank, name);
  }

  Result<void> open_stream(Streams stream, std::unique_ptr<WorkerStream>& ours, UniqueFd& theirs,
                           std::string& log) {
    const bool is_err = stream == Streams::err;
    Console& console = is_err ? *place_.err : *place_.out;
    const StreamPlan plan =
        plan_stream(place_.options->log, {stream, facts_.local_rank, facts_.rank,
                                          console.is_terminal(), wants_files(place_.options->log)});
    if (plan.to_file) log = worker_path(is_err ? "stderr.log" : "stdout.log");
    auto ends = open_ends(plan, log, console, workers_);
    if (!ends) return tl::unexpected(ends.error());
    theirs = std::move(ends->theirs);
    if (plan.direct()) return {};
    StreamParts parts = stream_parts(plan, is_err);
    parts.meter = std::make_shared<ReadMeter>(std::move(ends->ours));
    if (plan.to_console) parts.console = &console;
    if (plan.to_file) {
      auto file = open_log(log);
      if (!file) return tl::unexpected(file.error());
      parts.file = std::make_unique<Sink>(std::move(*file), log);
    } else if (!place_.folder.empty()) {
      parts.keep_path = worker_path(is_err ? "stderr_tail.log" : "stdout_tail.log");
      parts.keep_bytes = std::min(kKeptBytesMax, kKeptBytesOfNode / (2 * workers_));
    }
    ours = std::make_unique<WorkerStream>(std::move(parts));
    return {};
  }

  StreamParts stream_parts(const StreamPlan& plan, bool is_err) const {
    const LogSpec& log = place_.options->log;
    StreamParts parts;
    parts.plan = plan;
    parts.is_err = is_err;
    parts.both = both_;
    if (plan.filtered) {
      parts.filtered = is_err ? filtered_.err : filtered_.out;
      parts.needles = is_err ? log.duplicate_stderr_filters : log.duplicate_stdout_filters;
    }
    if (plan.prefix == ConsolePrefix::tee) parts.prefix = tee_prefix(log.prefix_template, facts_);
    if (plan.prefix == ConsolePrefix::log_prefix) parts.log_prefix = LogPrefix(log.prefix, facts_);
    return parts;
  }

  const AttemptPlace& place_;
  FilteredFiles filtered_;
  size_t workers_;
  PrefixFacts facts_;
  std::shared_ptr<TailBuffer> both_;  // Of the worker that is being opened.
};

}  // namespace

Result<OpenedAttempt> open_attempt_streams(const AttemptPlace& place,
                                           const std::vector<int>& ranks) {
  auto filtered = open_filtered_files(place);
  if (!filtered) return tl::unexpected(filtered.error());
  StreamOpener opener(place, std::move(*filtered), ranks.size());
  OpenedAttempt all;
  for (size_t i = 0; i < ranks.size(); i++) {
    auto opened = opener.open_worker(static_cast<int>(i), ranks[i], all);
    if (!opened) return tl::unexpected(opened.error());
  }
  return all;
}

}  // namespace muster
