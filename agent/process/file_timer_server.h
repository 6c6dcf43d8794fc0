// The server for torch's file timer (TORCHELASTIC_ENABLE_FILE_TIMER=1): a FIFO into which workers
// write "kill me at this time unless I cancel it". The table of timers is pure (file_timer.h); this
// class owns the FIFO and the clock. Control loop only.
#pragma once

#include <array>
#include <functional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/process/file_timer.h"
#include "rendezvous/base/error.h"

namespace muster {

class FileTimerServer {
 public:
  using Expired = std::function<void(const FileTimer&)>;

  // Creates the FIFO (mode 0666 less the umask; replaces an existing path) and opens it. May wait
  // for a disk: not for the control loop. Fails with ExitCode::environment.
  static Result<int> make_fifo(const std::string& path);

  // Serves `fd` and owns it.
  FileTimerServer(boost::asio::io_context& io, std::string path, int fd, Expired expired);
  FileTimerServer(FileTimerServer&&) = delete;

  // No timer expires after this. The object must live until the loop has ended, since a handler may
  // be in flight; the caller removes the path.
  void close();

  const std::string& path() const { return path_; }
  void forget(int pid);  // FileTimers::forget()

 private:
  void read_more();
  void take_lines();
  void arm();

  std::string path_;
  boost::asio::posix::stream_descriptor fifo_;
  boost::asio::steady_timer timer_;
  Expired expired_;
  FileTimers timers_;
  std::string pending_;  // The beginning of a line, at most kLineBytesMax.
  std::array<char, 4096> buffer_{};
  bool closed_ = false;
};

}  // namespace muster
