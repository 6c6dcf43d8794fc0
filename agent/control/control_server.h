// The agent's end of musterctl: a Unix socket of the user's (0600, and the peer's uid is checked as
// well) at which a running job answers status, logs and signal requests. The agent gives callbacks
// and stays in charge; nothing here blocks its loop. A client has a few seconds to ask and to take
// its answer, and few may be connected at once: a slow or hostile one costs itself its connection.
// Control loop only, but for open() and remove(), which wait for a disk and belong elsewhere.
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

// What following a log asks for after the first answer: what came after these positions.
struct LogsQuery {
  control::RankRanges ranks;
  int lines = 10;
  std::map<int, uint64_t> after;  // By rank; a rank that is missing is asked for its last lines.
};

struct ControlHandlers {
  using LogsDone = std::function<void(Result<std::vector<control::LogText>>)>;

  using StatusDone = std::function<void(control::JobStatus)>;

  // Calls `done` once, on the control loop, at once or later; and so logs.
  std::function<void(StatusDone done)> status;
  std::function<Result<void>(int signal, const control::RankRanges& ranks)> signal;
  std::function<void(const LogsQuery& query, LogsDone done)> logs;
};

class ControlServer {
 public:
  struct Options {
    std::size_t connections_max = 16;
    std::chrono::milliseconds patience{5000};      // To ask, and to take an answer.
    std::chrono::milliseconds follow_period{250};  // Between looks at a followed log.
  };

  // A socket that listens, and where it is.
  struct Socket {
    int fd = -1;
    std::string folder;
    pid_t pid = 0;
  };

  // Makes the folder, the socket and the entry. What an earlier process of the same pid has left is
  // replaced. Fails with ExitCode::environment.
  static Result<Socket> open(const ControlPlace& place, const JobEntry& entry);
  // Removes socket and entry.
  static void remove(const Socket& socket) { remove_job_entry(socket.folder, socket.pid); }

  // Serves `socket`, whose descriptor it owns from now on.
  ControlServer(boost::asio::io_context& io, const Socket& socket, Options options,
                ControlHandlers handlers);
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;
  ~ControlServer();

  // Ends every connection and accepts no more. May be called again.
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
  boost::asio::steady_timer pause_;  // After a failed accept.
  Options options_;
  ControlHandlers handlers_;
  std::vector<std::shared_ptr<Session>> sessions_;
  bool closed_ = false;
  // Handlers that are under way when this object goes find its end here.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace muster
