// The agent's end of musterctl: a Unix socket (0600, and the peer's uid is checked) on which a
// running job answers requests through the agent's callbacks. A client has a few seconds to send
// its request and to take the answer, and connections are limited: a slow or hostile one only loses
// its connection. Control loop only, except for open() and remove(), which wait for a disk.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/control/control_folder.h"
#include "agent/control/control_protocol.h"
#include "rendezvous/base/error.h"

namespace muster {

// A request for logs; a followed one then asks for the output after these positions.
struct LogsQuery {
  control::RankRanges ranks;
  int lines = 10;
  std::map<int, uint64_t> after;  // Positions by rank; without one, the rank's last lines are sent.
};

struct ControlHandlers {
  using LogsDone = std::function<void(Result<std::vector<control::LogText>>)>;

  using StatusDone = std::function<void(control::JobStatus)>;
  using RecordsDone = std::function<void(Result<control::Records>)>;
  using StacksDone = std::function<void(Result<control::Stacks>)>;
  using DumpDone = std::function<void(Result<control::Dump>)>;

  // Calls `done` once, on the control loop, at once or later; so do all that take one.
  std::function<void(StatusDone done)> status;
  std::function<Result<void>(int signal, const control::RankRanges& ranks)> signal;
  std::function<void(const LogsQuery& query, LogsDone done)> logs;
  std::function<void(const control::RecordsRequest& request, RecordsDone done)> records;
  std::function<void(const control::StacksRequest& request, StacksDone done)> stacks;
  std::function<void(DumpDone done)> dump;
};

class ControlServer {
 public:
  struct Options {
    std::size_t connections_max = 16;
    std::chrono::milliseconds patience{5000};      // Limit to send a request and to take an answer.
    std::chrono::milliseconds for_stacks{12000};   // Limit of the handlers that read stacks.
    std::chrono::milliseconds follow_period{250};  // Between checks of a followed log.
  };

  struct Socket {
    int fd = -1;
    std::string folder;
    pid_t pid = 0;
  };

  // Creates the folder, the socket and the entry. Replaces what an earlier process with the same
  // pid left behind. Fails with ExitCode::environment.
  static Result<Socket> open(const ControlPlace& place, const JobEntry& entry);
  static void remove(const Socket& socket) { remove_job_entry(socket.folder, socket.pid); }

  // Serves `socket` and owns its descriptor from now on.
  ControlServer(boost::asio::io_context& io, const Socket& socket, Options options,
                ControlHandlers handlers);
  ControlServer(ControlServer&&) = delete;
  ~ControlServer() { close(); }

  // Ends every connection and stops accepting. May be called again.
  void close();

  std::size_t connections() const { return sessions_.size(); }

 private:
  class Session;

  void accept_next();
  void on_accepted(boost::asio::local::stream_protocol::socket socket);
  void accept_after_a_pause();
  void forget(const Session& session);

  boost::asio::io_context& io_;
  boost::asio::local::stream_protocol::acceptor acceptor_;
  boost::asio::steady_timer pause_;  // Runs after a failed accept.
  Options options_;
  ControlHandlers handlers_;
  std::vector<std::shared_ptr<Session>> sessions_;
  // Tells handlers still in flight that this object is closed, and may be gone.
  std::shared_ptr<bool> open_ = std::make_shared<bool>(true);
};

}  // namespace muster
