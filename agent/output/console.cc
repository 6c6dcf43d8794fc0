#include "agent/output/console.h"

#include <system_error>
#include <utility>

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/base/quiet_thread.h"

namespace muster {
namespace {

constexpr size_t kKeptMax = size_t{8} << 20;  // A larger buffer is freed after use.

bool is_regular_file(int fd) {
  struct stat status{};
  return ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

bool SinkWriter::start() {
  try {
    thread_ = quiet_thread([this] { run(); });
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

void SinkWriter::put(const LineMux::Pieces& pieces) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.size() < kRestsMax; });
  for (const std::string_view piece : pieces)
    waiting_.append(piece);
  changed_.notify_all();
}

bool SinkWriter::has_room() {
  const std::lock_guard lock(mutex_);
  const bool room = waiting_.size() < kWaitingMax;
  room_wanted_ = room_wanted_ || !room;
  return room;
}

bool SinkWriter::gone() {
  const std::lock_guard lock(mutex_);
  return gone_;
}

std::optional<std::string> SinkWriter::take_message() {
  const std::lock_guard lock(mutex_);
  return std::exchange(message_, std::nullopt);
}

void SinkWriter::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty() && !writing_; });
}

void SinkWriter::finish() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void SinkWriter::run() {
  ::pthread_setname_np(::pthread_self(), "muster-console");
  std::string bytes;  // Swapped with waiting_, so that both keep their memory.
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !waiting_.empty() || stopping_; });
    if (waiting_.empty()) return;
    write_waiting(lock, bytes);
  }
}

void SinkWriter::write_waiting(std::unique_lock<std::mutex>& lock, std::string& bytes) {
  bytes.swap(waiting_);
  writing_ = true;
  bool news = std::exchange(room_wanted_, false);
  lock.unlock();
  if (news) wake_();
  auto message = sink_.write(bytes);
  const bool gone = sink_.reader_gone();
  bytes.clear();
  if (bytes.capacity() > kKeptMax) bytes = std::string();
  lock.lock();
  writing_ = false;
  news = message || gone != gone_;
  if (message) message_ = std::move(message);
  gone_ = gone;
  changed_.notify_all();
  if (news) wake_();
}

Console::Console(int fd, std::string name, std::function<void()> wake)
    : sink_(std::make_unique<Sink>(fd, std::move(name))),
      wake_(std::move(wake)),
      terminal_(::isatty(fd) == 1),
      direct_(is_regular_file(fd)) {}

std::optional<std::string> Console::feed(int stream, std::string_view bytes, Instant now) {
  if (gone()) return std::nullopt;
  mux_.feed(stream, bytes, now, pieces_);
  return flush();
}

std::optional<std::string> Console::close(int stream, Instant now) {
  mux_.close(stream, now, pieces_);
  return flush();
}

std::optional<std::string> Console::tick(Instant now) {
  mux_.tick(now, pieces_);
  return flush();
}

std::optional<std::string> Console::flush() {
  if (pieces_.empty()) return std::nullopt;
  if (!writer_ && !direct_) {
    writer_ = std::make_unique<SinkWriter>(*sink_, wake_);
    direct_ = !writer_->start();
    if (direct_) writer_.reset();
  }
  std::optional<std::string> message;
  if (writer_) {
    writer_->put(pieces_);
  } else {
    message = sink_->write(pieces_);
  }
  pieces_.clear();
  return message;
}

bool Console::wants(int stream) {
  if (gone()) return true;
  if (!mux_.wants(stream)) return false;
  if (!writer_ || writer_->has_room()) return true;
  clock_held_ = true;
  return false;
}

std::optional<std::string> Console::dropped_line() {
  wait_written();
  return sink_->dropped_line();
}

void Console::finish() {
  if (writer_) writer_->finish();
}

bool same_file(int a, int b) {
  struct stat left{};
  struct stat right{};
  if (a == b) return true;
  if (::fstat(a, &left) != 0 || ::fstat(b, &right) != 0) return false;
  return left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

}  // namespace muster
