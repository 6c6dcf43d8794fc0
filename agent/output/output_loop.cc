#include "agent/output/output_loop.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include "agent/output/log_tree.h"
#include "agent/output/pty.h"
#include "rendezvous/base/event_fd.h"
#include "rendezvous/base/steady_now.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

constexpr uint64_t kRequestsToken = 0;
constexpr size_t kReadMax = size_t{256} << 10;  // Stays in the second-level cache.
constexpr size_t kTerminalRest = size_t{1} << 20;
constexpr size_t kKeptAttempts = 5;  // A job that restarts a thousand times must not fill /tmp.

// A console that is gone ends the workers that print there, as `| head` does, but only after this
// time: the signal that ended its reader may be on its way to us.
constexpr auto kStopMayFollow = std::chrono::milliseconds(250);

// The most that can be left in a stream after its writers have stopped.
size_t capacity_of(const WorkerStream& stream) {
  const int capacity = ::fcntl(stream.fd(), F_GETPIPE_SZ);
  return capacity > 0 ? static_cast<size_t>(capacity) : kTerminalRest;
}

}  // namespace

Result<std::shared_ptr<OutputLoop>> OutputLoop::create(OutputOptions options) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  UniqueFd event = open_event_fd();
  if (!epoll || !event) {
    return fail(ExitCode::environment,
                fmt::format("cannot open descriptors for the workers' output: {}; raise the "
                            "descriptor limit (ulimit -n)",
                            std::strerror(errno)));
  }
  return std::make_shared<OutputLoop>(std::move(options), std::move(epoll), std::move(event));
}

OutputLoop::OutputLoop(OutputOptions options, UniqueFd epoll, UniqueFd event)
    : options_(std::move(options)),
      epoll_(std::move(epoll)),
      requests_(std::move(event)),
      buffer_(new char[kReadMax]),
      ended_(end_.get_future()) {
  consoles_.reserve(2);  // Streams point to them.
  const bool shared = same_file(options_.console_out, options_.console_err);
  const auto wake = [this] { requests_.push([] {}); };
  consoles_.emplace_back(options_.console_out, shared ? "the console" : "standard output", wake);
  if (!shared) consoles_.emplace_back(options_.console_err, "standard error", wake);
  own_stream_ = err_console().open();
  watch(kRequestsToken, requests_.event_fd());
}

void OutputLoop::run() {
  ::pthread_setname_np(::pthread_self(), "muster-output");
  while (!stopping_) {
    events_.resize(streams_.size() + 1);
    const Instant before = steady_now();
    const int count = ::epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()),
                                   poll_timeout(next_deadline()));
    // All signals are blocked, so EINTR means SIGSTOP and SIGCONT: see signal(7).
    if (count < 0 && errno == EINTR && !stood_still_since_) stood_still_since_ = before;
    handle_events(static_cast<size_t>(std::max(count, 0)));
    if (count > 0) stood_still_since_.reset();
    // A write may have taken long, and a stream is quiet only if it had no data when we polled.
    tick(count > 0 ? before : steady_now());
    settle();
  }
  if (refused_ > 0) err_console().wait_written();
  settle();
  for (Console& console : consoles_)
    console.finish();
  end_.set_value();
}

Instant OutputLoop::next_deadline() const {
  Instant first = kNever;
  for (const Console& console : consoles_)
    first = std::min(first, console.next_deadline());
  if (gone_since_ && has_useless()) first = std::min(first, *gone_since_ + kStopMayFollow);
  return first;
}

void OutputLoop::handle_events(size_t count) {
  bool requested = false;
  for (size_t i = 0; i < count; i++) {
    const uint64_t token = events_[i].data.u64;
    if (token == kRequestsToken) {
      requested = true;
    } else {
      read_once(token, stood_still_since_
                           ? time_after_standstill(*stood_still_since_, steady_now(), count - 1 - i)
                           : steady_now());
    }
  }
  if (requested) refused_ += requests_.perform_all();
}

void OutputLoop::tick(Instant seen) {
  for (Console& console : consoles_) {
    if (console.next_deadline() <= seen) notices_.add_console(console.tick(seen));
  }
}

void OutputLoop::settle() {
  end_useless();
  resume_paused();
  say_notices();
  if (refused_ == 0 || !err_console().wants(own_stream_)) return;
  say(fmt::format("muster: dropped {} of its own while the output was blocked",
                  counted(std::exchange(refused_, 0), "message")));
}

// Includes messages of the consoles' writers. A full disk fails many log files; only one is named.
void OutputLoop::say_notices() {
  for (Console& console : consoles_)
    notices_.add_console(console.news());
  const Notices notices = std::exchange(notices_, {});
  for (const std::string& message : notices.console)
    say(message);
  if (notices.files.empty() || file_failure_said_) return;
  file_failure_said_ = true;
  say(notices.files.front());
}

void OutputLoop::watch(uint64_t token, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = token;
  // Fails only for lack of kernel memory or watches; such a stream is read by drain().
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void OutputLoop::read_once(uint64_t token, Instant now) {
  const auto it = streams_.find(token);
  if (it == streams_.end()) return;
  WorkerStream& stream = *it->second;
  if (!stream.wants()) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stream.fd(), nullptr);
    paused_.insert(token);
    return;
  }
  const ssize_t n = stream.read(buffer_.get(), kReadMax);
  if (n == 0) return end_stream(token, stream);
  if (n > 0) stream.take({buffer_.get(), static_cast<size_t>(n)}, now, notices_);
}

// Reads what is there now, at most the stream's capacity, since a process may still write.
void OutputLoop::read_rest(WorkerStream& stream) {
  const size_t most = capacity_of(stream);
  for (size_t have = 0; have < most;) {
    const ssize_t n = stream.read(buffer_.get(), kReadMax);
    if (n <= 0) return;
    have += static_cast<size_t>(n);
    stream.take({buffer_.get(), static_cast<size_t>(n)}, steady_now(), notices_);
  }
}

void OutputLoop::end_stream(uint64_t token, WorkerStream& stream) {
  // Closing alone does not remove it from epoll while a child that is being spawned holds a copy.
  if (!paused_.contains(token)) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stream.fd(), nullptr);
  paused_.erase(token);
  streams_.erase(token);
  stream.end(steady_now(), notices_);
}

void OutputLoop::resume_paused() {
  for (Console& console : consoles_)
    console.release_clock();
  for (auto it = paused_.begin(); it != paused_.end();) {
    WorkerStream& stream = *streams_.at(*it);
    if (!stream.wants()) {
      ++it;
      continue;
    }
    watch(*it, stream.fd());
    it = paused_.erase(it);
  }
}

bool OutputLoop::has_useless() const {
  return !reads_to_the_end_ &&
         std::ranges::any_of(streams_, [](const auto& entry) { return entry.second->useless(); });
}

void OutputLoop::end_useless() {
  if (std::ranges::none_of(consoles_, &Console::gone)) return;
  if (!gone_since_) gone_since_ = steady_now();
  if (reads_to_the_end_ || steady_now() < *gone_since_ + kStopMayFollow) return;
  const auto streams = streams_;
  for (const auto& [token, stream] : streams) {
    if (!stream->useless()) continue;
    stream->lose_reader();
    end_stream(token, *stream);
  }
}

void OutputLoop::open_run(const Output::RunDone& done) {
  auto folders = make_run_folders(options_);
  if (!folders && !asks_for_files(options_.log)) {
    note_file(options_.temp_dir, folders.error().message);
    folders = RunFolders{};
  }
  if (folders) folders_ = *folders;
  done(std::move(folders));
}

// Returns empty if no files are wanted, or if they cannot be created and the user asked for none.
Result<std::string> OutputLoop::attempt_folder(const AttemptPlan& plan) {
  if (folders_.run_dir.empty()) return std::string();
  auto folder = restore_run_folders(folders_).and_then([&] {
    return make_attempt_folder(folders_.run_dir, plan.restart_count,
                               static_cast<int>(plan.ranks.size()), options_.first_local_rank);
  });
  if (folder || asks_for_files(options_.log)) return folder;
  note_file(folders_.run_dir, folder.error().message);
  return std::string();
}

void OutputLoop::open_attempt(const AttemptPlan& plan, const Output::AttemptDone& done) {
  CHECK(!attempt_open_);
  AttemptPlace place{&options_, "", &consoles_.front(), &err_console()};
  auto folder = attempt_folder(plan);
  if (!folder) return done(tl::unexpected(folder.error()));
  place.folder = *folder;
  auto opened = open_attempt_streams(place, plan.ranks);
  if (!opened) return done(tl::unexpected(opened.error()));
  attempt_open_ = true;
  reads_to_the_end_ = false;
  file_failure_said_ = false;
  workers_ = std::move(opened->ours);
  for (const WorkerEnds& worker : workers_) {
    for (WorkerStream* stream : worker.streams()) {
      streams_.emplace(next_token_, stream);
      watch(next_token_++, stream->fd());
    }
  }
  {
    const std::lock_guard lock(meters_mutex_);
    for (const WorkerEnds& worker : workers_) {
      if (worker.err.stream) err_meters_.push_back(worker.err.stream->meter());
    }
  }
  done(std::move(opened->theirs));
}

void OutputLoop::mark_stop() {
  const std::lock_guard lock(meters_mutex_);
  for (const auto& meter : err_meters_)
    meter->mark_stop();
}

void OutputLoop::drain(bool keep, const Output::DrainDone& done) {
  // The streams that own a console end first, so that the others need not be held.
  std::deque<std::pair<uint64_t, WorkerStream*>> open;
  for (const auto& entry : streams_) {
    entry.second->owns_console() ? open.push_front(entry) : open.push_back(entry);
  }
  for (const auto& [token, stream] : open) {
    read_rest(*stream);
    end_stream(token, *stream);
  }
  DrainReport report;
  for (const WorkerEnds& worker : workers_)
    report.workers.push_back(printed_by(worker));
  if (keep) keep_tails(report);
  say_notices();
  say_dropped_by_files();
  {
    const std::lock_guard lock(meters_mutex_);
    err_meters_.clear();
  }
  workers_.clear();
  attempt_open_ = false;
  done(std::move(report));
}

void OutputLoop::keep_tails(DrainReport& report) {
  std::vector<std::string>& kept = kept_.emplace_back();
  for (size_t i = 0; i < workers_.size(); ++i) {
    WorkerPrinted& printed = report.workers[i];
    const WorkerEnds& worker = workers_[i];
    if (worker.out.stream) printed.kept_out = worker.out.stream->keep_tail(notices_);
    if (worker.err.stream) printed.kept_err = worker.err.stream->keep_tail(notices_);
    for (const std::string& path : {printed.kept_out, printed.kept_err}) {
      if (!path.empty()) kept.push_back(path);
    }
    printed.out_tail = worker.out.stream ? worker.out.stream->tail().last(kOutQuotedBytesMax)
                                         : file_tail(worker.out.log, kOutQuotedBytesMax);
  }
  remove_kept(kKeptAttempts);
}

void OutputLoop::remove_kept(size_t attempts_left) {
  for (; kept_.size() > attempts_left; kept_.pop_front()) {
    for (const std::string& path : kept_.front())
      ::unlink(path.c_str());
  }
}

// A log file that the worker writes itself is read from disk; the times of its parts are unknown.
WorkerPrinted OutputLoop::printed_by(const WorkerEnds& worker) const {
  WorkerPrinted printed;
  if (const WorkerStream* err = worker.err.stream.get()) {
    printed.err_tail = err->tail().last(kQuotedBytesMax);
    printed.err_total = err->tail().total();
    printed.err_total_before_stop = err->before_stop();
    printed.err_times = err->tail_times();
  } else {
    printed.err_tail = file_tail(worker.err.log, kQuotedBytesMax);
    const FileState now = file_state(worker.err.log);
    printed.err_total = std::max<uint64_t>(now.size, printed.err_tail.size());
    printed.err_total_before_stop =
        worker.err_at_stop ? worker.err_at_stop->size : printed.err_total;
    printed.err_written = worker.err_at_stop.value_or(now).changed;
  }
  for (const WorkerStream* stream : worker.streams()) {
    printed.last_output = std::max(printed.last_output, stream->last_output());
    printed.lost_console = printed.lost_console || stream->has_lost_reader();
  }
  return printed;
}

// Marks the files that workers write themselves; mark_stop() has marked the other streams.
void OutputLoop::mark_files() {
  for (WorkerEnds& worker : workers_) {
    if (!worker.err.stream && !worker.err.log.empty() && !worker.err_at_stop)
      worker.err_at_stop = file_state(worker.err.log);
  }
}

std::vector<WorkerTail> OutputLoop::tails() const {
  std::vector<WorkerTail> tails;
  for (const WorkerEnds& worker : workers_) {
    WorkerTail tail{worker.both->text(), worker.both->total()};
    for (const WorkerEnd* end : {&worker.out, &worker.err}) {
      if (end->stream || end->log.empty()) continue;
      tail.text += file_tail(end->log, kQuotedBytesMax);
      tail.position += file_state(end->log).size;
    }
    tails.push_back(std::move(tail));
  }
  return tails;
}

void OutputLoop::say_dropped_by_files() {
  uint64_t bytes = 0;
  int files = 0;
  for (const WorkerEnds& worker : workers_) {
    for (const WorkerStream* stream : worker.streams()) {
      bytes += stream->file_dropped();
      files += stream->file_dropped() > 0 ? 1 : 0;
    }
  }
  if (files == 0) return;
  say(fmt::format("muster: {} of output missing in {} in {}", counted(bytes, "byte"),
                  counted(files, "log file"), folders_.run_dir));
}

void OutputLoop::say(std::string text) {
  if (!err_console().wants(own_stream_)) {
    refused_++;
    return;
  }
  if (text.empty() || text.back() != '\n') text.push_back('\n');
  notices_.add_console(err_console().feed(own_stream_, text, steady_now()));
}

std::string OutputLoop::path_of(const std::string& name) const {
  if (name.starts_with('/')) return name;
  if (folders_.run_dir.empty() || folders_.temporary) return "";
  return folders_.run_dir + "/" + name;
}

void OutputLoop::note_file(const std::string& name, std::optional<std::string> failure) {
  if (!failure || !failed_files_.insert(name).second) return;
  say("muster: " + *failure + "; the job continues without it");
}

void OutputLoop::append(const std::string& name, const std::string& text) {
  const std::string path = path_of(name);
  if (!path.empty()) note_file(name, append_to_file(path, text));
}

void OutputLoop::write_file(const std::string& name, const std::string& content) {
  const std::string path = path_of(name);
  if (!path.empty()) note_file(name, replace_file(path, content));
}

void OutputLoop::resize() {
  for (const auto& [token, stream] : streams_) {
    if (stream->is_terminal()) copy_window_size(stream->console()->fd(), stream->fd());
  }
}

void OutputLoop::remove_temporary(bool succeeded) {
  if (succeeded) remove_kept(0);
  remove_if_empty(folders_);
}

void OutputLoop::finish(const Output::Done& done) {
  std::vector<std::string> lines;
  for (Console& console : consoles_) {
    if (auto line = console.dropped_line()) lines.push_back(std::move(*line));
  }
  say_notices();
  for (const std::string& line : lines)
    say(line);
  err_console().wait_written();
  done();
}

}  // namespace muster
