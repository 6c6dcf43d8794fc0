#include "agent/process/file_timer_server.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <boost/asio/buffer.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/net/call_after.h"

namespace muster {
namespace {

// A request is one write of at most PIPE_BUF bytes, so anything longer is not a request.
constexpr size_t kLineBytesMax = PIPE_BUF;
constexpr double kLongestWaitSeconds = 3600;

double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

Result<int> FileTimerServer::make_fifo(const std::string& path) {
  unlink(path.c_str());
  if (mkfifo(path.c_str(), 0666) != 0) {
    return fail(
        ExitCode::environment,
        fmt::format(
            "cannot create the file timer's FIFO {}: {} (set TORCHELASTIC_TIMER_FILE to a path "
            "that can be written)",
            path, std::strerror(errno)));
  }
  // Read-write, so that there is always a writer and never an end of file (fifo(7)).
  const int fd = open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd >= 0) return fd;
  return fail(ExitCode::environment,
              fmt::format("cannot open the file timer's FIFO {}: {}", path, std::strerror(errno)));
}

FileTimerServer::FileTimerServer(boost::asio::io_context& io, std::string path, int fd,
                                 Expired expired)
    : path_(std::move(path)), fifo_(io, fd), timer_(io), expired_(std::move(expired)) {
  read_more();
}

void FileTimerServer::close() {
  closed_ = true;
  boost::system::error_code ignored;
  fifo_.close(ignored);
  timer_.cancel();
}

void FileTimerServer::forget(int pid) {
  timers_.forget(pid);
  arm();
}

void FileTimerServer::read_more() {
  fifo_.async_read_some(boost::asio::buffer(buffer_),
                        [this](boost::system::error_code error, size_t n) {
                          if (error || closed_) return;
                          pending_.append(buffer_.data(), n);
                          take_lines();
                          read_more();
                        });
}

void FileTimerServer::take_lines() {
  size_t newline = 0;
  while ((newline = pending_.find('\n')) != std::string::npos) {
    const auto request = parse_file_timer_line(std::string_view(pending_).substr(0, newline));
    if (request) timers_.apply(*request);
    pending_.erase(0, newline + 1);
  }
  // torch's client writes no newline after JSON that fills PIPE_BUF: keep such a remainder.
  if (pending_.size() > kLineBytesMax) pending_.clear();
  arm();
}

void FileTimerServer::arm() {
  const auto deadline = timers_.next_deadline();
  if (!deadline) {
    timer_.cancel();
    return;
  }
  // A timer years away must not overflow the clock: check again after an hour.
  const double wait_s = std::clamp(*deadline - unix_now(), 0.0, kLongestWaitSeconds);
  const auto wait = from_seconds(wait_s);
  call_after(timer_, wait, [this] {
    if (closed_) return;
    for (const FileTimer& timer : timers_.expired(unix_now()))
      expired_(timer);
    arm();
  });
}

}  // namespace muster
