#include "agent/control/control_server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/call_after.h"

namespace muster {
namespace {

using boost::asio::local::stream_protocol;
using boost::system::error_code;

constexpr int kControlBacklog = 64;
constexpr std::chrono::milliseconds kAcceptRetryPause{1000};

// The folder's mode keeps other users out already; this covers a folder whose mode was loosened.
bool is_from_the_same_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == geteuid() || peer.uid == 0);
}

Error control_socket_error(const std::string& what, const std::string& path) {
  return Error{ExitCode::environment,
               fmt::format("cannot {} {}: {}; musterctl will not find this job", what, path,
                           std::strerror(errno))};
}

}  // namespace

// One client, from its request to the end of the answer.
class ControlServer::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(ControlServer& server, stream_protocol::socket socket)
      : server_(&server), socket_(std::move(socket)), patience_(server.io_), look_(server.io_) {}

  void start() {
    wait_with_patience(server_->options_.patience);
    read_request();
  }

  // Removes this session from the server; handlers in flight see that it has ended.
  void end() {
    if (server_ == nullptr) return;
    const auto self = shared_from_this();
    ControlServer* server = std::exchange(server_, nullptr);
    patience_.cancel();
    look_.cancel();
    error_code ignored;
    socket_.close(ignored);
    server->forget(*this);
  }

 private:
  void wait_with_patience(std::chrono::milliseconds patience) {
    call_after(patience_, patience, [self = shared_from_this()] {
      if (self->server_ == nullptr) return;
      if (!self->answering_) return self->end();
      ++self->asked_;  // The handler may still answer; that answer is ignored.
      self->follow_ = false;
      self->reply(Error{ExitCode::environment,
                        "the job has not answered in time; its disk or its console may be stuck"});
    });
  }

  void read_request() {
    socket_.async_read_some(boost::asio::buffer(buffer_),
                            [self = shared_from_this()](error_code error, std::size_t n) {
                              if (self->server_ == nullptr) return;
                              if (error) return self->end();
                              self->take(n);
                            });
  }

  void take(std::size_t n) {
    pending_.append(buffer_.data(), n);
    const std::size_t newline = pending_.find('\n');
    if (newline == std::string::npos && pending_.size() <= control::kRequestBytesMax) {
      return read_request();
    }
    Result<control::Request> request =
        control::decode_request(std::string_view(pending_).substr(0, newline));
    pending_ = {};
    if (!request) return reply(request.error());
    std::visit([this](const auto& wanted) { serve(wanted); }, *request);
  }

  // The callback for a handler: ignores the answer if the session has ended or lost patience.
  template <typename Take>
  auto ask(Take take) {
    return ask(server_->options_.patience, take);
  }
  template <typename Take>
  auto ask(std::chrono::milliseconds patience, Take take) {
    wait_with_patience(patience);
    answering_ = true;
    return [self = shared_from_this(), question = ++asked_, take](auto answer) {
      if (self->server_ == nullptr || question != self->asked_) return;
      ++self->asked_;
      take(*self, std::move(answer));
    };
  }

  void serve(const control::StatusRequest&) {
    server_->handlers_.status(
        ask([](Session& self, control::JobStatus status) { self.reply(std::move(status)); }));
  }

  void serve(const control::SignalRequest& request) {
    const Result<void> done = server_->handlers_.signal(request.signal, request.ranks);
    if (!done) return reply(done.error());
    reply(control::Done{});
  }

  void serve(const control::LogsRequest& request) {
    query_ = LogsQuery{request.ranks, request.lines, {}};
    follow_ = request.follow;
    if (follow_) watch_for_the_end();
    ask_for_logs();
  }

  static constexpr auto kPassOn = [](auto& self, auto answer) {
    if (!answer) return self.reply(answer.error());
    self.reply(std::move(*answer));
  };

  void serve(const control::RecordsRequest& request) {
    server_->handlers_.records(request, ask(kPassOn));
  }

  void serve(const control::StacksRequest& request) {
    server_->handlers_.stacks(request, ask(server_->options_.for_stacks, kPassOn));
  }

  void serve(const control::DumpRequest&) {
    server_->handlers_.dump(ask(server_->options_.for_stacks, kPassOn));
  }

  void serve(const control::VariablesRequest&) {
    reply(Error{ExitCode::usage, "variables are what agents ask each other for"});
  }

  // A follower sends nothing more: anything readable ends the session, as end of file does.
  void watch_for_the_end() {
    socket_.async_read_some(boost::asio::buffer(buffer_),
                            [self = shared_from_this()](error_code, std::size_t) { self->end(); });
  }

  void ask_for_logs() {
    server_->handlers_.logs(query_,
                            ask([](Session& self, auto logs) { self.on_logs(std::move(logs)); }));
  }

  void on_logs(Result<std::vector<control::LogText>> logs) {
    if (!logs) {
      follow_ = false;
      return reply(logs.error());
    }
    for (const control::LogText& log : *logs)
      query_.after[log.rank] = log.position;
    if (follow_ && answered_) {
      std::erase_if(*logs, [](const control::LogText& log) { return log.text.empty(); });
      if (logs->empty()) return look_again_later();
    }
    reply(std::move(*logs));
  }

  void reply(control::Reply what) {
    answering_ = false;
    answered_ = true;
    line_ = control::encode(what);
    wait_with_patience(server_->options_.patience);
    boost::asio::async_write(socket_, boost::asio::buffer(line_),
                             [self = shared_from_this()](error_code error, std::size_t) {
                               if (self->server_ == nullptr) return;
                               if (error || !self->follow_) return self->end();
                               self->look_again_later();
                             });
  }

  void look_again_later() {
    answering_ = false;
    patience_.cancel();
    call_after(look_, server_->options_.follow_period, [self = shared_from_this()] {
      if (self->server_ != nullptr) self->ask_for_logs();
    });
  }

  ControlServer* server_;  // Null: the session has ended.
  stream_protocol::socket socket_;
  boost::asio::steady_timer patience_;
  boost::asio::steady_timer look_;
  std::array<char, 4096> buffer_{};
  std::string pending_;
  std::string line_;
  LogsQuery query_;
  bool follow_ = false;
  bool answering_ = false;  // A handler has to answer.
  bool answered_ = false;   // Something has been sent.
  int asked_ = 0;           // The current question; answers to older ones are ignored.
};

Result<ControlServer::Socket> ControlServer::open(const ControlPlace& place,
                                                  const JobEntry& entry) {
  Result<std::string> folder = make_control_folder(place);
  if (!folder) return tl::unexpected(folder.error());
  remove_job_entry(*folder, entry.pid);
  const std::string path = control_socket_path(*folder, entry.pid);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return tl::unexpected(control_socket_error("make the socket", path));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // On Linux the socket file takes the mode of the descriptor: fchmod before bind keeps it narrow.
  if (!fd || fchmod(fd.get(), 0600) != 0 ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(fd.get(), kControlBacklog) != 0) {
    return tl::unexpected(control_socket_error("make the socket", path));
  }
  if (Result<void> written = write_job_entry(*folder, entry); !written) {
    unlink(path.c_str());
    return tl::unexpected(written.error());
  }
  return Socket{fd.release(), *folder, entry.pid};
}

ControlServer::ControlServer(boost::asio::io_context& io, const Socket& socket, Options options,
                             ControlHandlers handlers)
    : io_(io),
      acceptor_(io, stream_protocol(), socket.fd),
      pause_(io),
      options_(options),
      handlers_(std::move(handlers)) {
  accept_next();
}

void ControlServer::close() {
  *open_ = false;
  error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
  while (!sessions_.empty())
    sessions_.back()->end();
}

void ControlServer::forget(const Session& session) {
  std::erase_if(sessions_, [&](const auto& held) { return held.get() == &session; });
}

void ControlServer::accept_next() {
  acceptor_.async_accept([this, is_open = open_](error_code error, stream_protocol::socket socket) {
    if (!*is_open) return;
    // Without a free descriptor, accepting again at once would spin.
    if (error) return accept_after_a_pause();
    on_accepted(std::move(socket));
    accept_next();
  });
}

void ControlServer::accept_after_a_pause() {
  call_after(pause_, kAcceptRetryPause, [this, is_open = open_] {
    if (*is_open) accept_next();
  });
}

void ControlServer::on_accepted(stream_protocol::socket socket) {
  if (!is_from_the_same_user(socket.native_handle())) return;
  if (sessions_.size() >= options_.connections_max) {
    const std::string line = control::encode(control::Reply(
        Error{ExitCode::environment, "the job is answering others already; try again"}));
    ::send(socket.native_handle(), line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return;
  }
  auto session = std::make_shared<Session>(*this, std::move(socket));
  sessions_.push_back(session);
  session->start();
}

}  // namespace muster
