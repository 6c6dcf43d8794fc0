#include "agent/output/worker_stream.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent/output/log_tree.h"

namespace muster {
namespace {

std::string log_time_of_day() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto since = now.time_since_epoch();
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(since).count() % 1000;
  std::tm local{};
  ::localtime_r(&seconds, &local);
  return fmt::format("{:02}:{:02}:{:02}.{:03}", local.tm_hour, local.tm_min, local.tm_sec, millis);
}

constexpr size_t kKeptLines = 10'000;

}  // namespace

ssize_t ReadMeter::read(char* buffer, size_t size) {
  const std::lock_guard lock(mutex_);
  for (;;) {
    const ssize_t n = ::read(fd_.get(), buffer, size);
    if (n >= 0) {
      total_ += static_cast<uint64_t>(n);
      return n;
    }
    if (errno == EAGAIN) return -1;
    if (errno != EINTR) return 0;
  }
}

void ReadMeter::close() {
  const std::lock_guard lock(mutex_);
  fd_.reset();
}

void ReadMeter::mark_stop() {
  const std::lock_guard lock(mutex_);
  if (mark_) return;
  int waiting = 0;
  if (fd_ && ::ioctl(fd_.get(), FIONREAD, &waiting) != 0) waiting = 0;
  mark_ = total_ + static_cast<uint64_t>(std::max(waiting, 0));
}

uint64_t ReadMeter::before_stop() const {
  const std::lock_guard lock(mutex_);
  return mark_.value_or(total_);
}

WorkerStream::WorkerStream(StreamParts parts)
    : parts_(std::move(parts)),
      filter_(parts_.needles),
      tail_(std::max(parts_.keep_bytes, parts_.is_err ? kQuotedBytesMax : kOutQuotedBytesMax)) {
  if (console() != nullptr) mux_stream_ = console()->open();
}

void WorkerStream::take(std::string_view bytes, Instant now, Notices& notices) {
  last_output_ = now;
  tail_.add(bytes);
  if (parts_.is_err) times_.add(tail_.total(), now);
  if (parts_.both) parts_.both->add(bytes);
  if (parts_.file) notices.add_file(parts_.file->write(bytes));
  if (console() == nullptr) return;
  const std::string& prefix = current_prefix();
  if (parts_.filtered) {
    scratch_.clear();
    filter_.feed(prefix, bytes, scratch_);
    notices.add_file(parts_.filtered->write(scratch_));
  }
  if (prefix.empty()) {
    notices.add_console(console()->feed(mux_stream_, bytes, now));
    return;
  }
  scratch_.clear();
  prefixer_.apply(prefix, bytes, scratch_);
  notices.add_console(console()->feed(mux_stream_, scratch_, now));
}

void WorkerStream::end(Instant now, Notices& notices) {
  parts_.meter->close();
  scratch_ = std::string();
  if (console() == nullptr) return;
  if (parts_.filtered) {
    filter_.finish(current_prefix(), scratch_);
    notices.add_file(parts_.filtered->write(scratch_));
  }
  notices.add_console(console()->close(mux_stream_, now));
}

std::string WorkerStream::keep_tail(Notices& notices) const {
  if (parts_.keep_path.empty() || tail_.total() == 0) return {};
  const auto failure = replace_file(parts_.keep_path, tail_.last_lines(kKeptLines));
  if (!failure) return parts_.keep_path;
  notices.add_file("muster: " + *failure + "; the last lines of that output are not kept");
  return {};
}

const std::string& WorkerStream::current_prefix() {
  if (!parts_.timed_prefix) return parts_.prefix;
  return prefix_now_ = with_time(parts_.prefix, log_time_of_day());
}

}  // namespace muster
