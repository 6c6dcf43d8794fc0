// A StoreServer behind a StoreListener on loopback, on its own thread, and clients that send raw
// bytes over blocking sockets, with a time-out that only a broken server reaches.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "rendezvous/store/store_listener.h"
#include "rendezvous/store/store_server.h"
#include "tests/unit/rendezvous/store/store_harness.h"
#include "tests/wait_for.h"

namespace muster::store_test {

class RunningStore {
 public:
  explicit RunningStore(StoreServer::Options options = {},
                        const IpAddress& address = IpAddress::loopback_v4(),
                        const std::shared_ptr<Places>& places = {})
      : server_(std::make_unique<StoreServer>(io_, std::move(options))) {
    server_->open(1);
    auto listener = StoreListener::open(io_, *server_, {SocketAddress{address, 0}}, places);
    if (!listener) std::abort();
    listener_ = std::move(listener->front());
    port_ = listener_->port();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~RunningStore() {
    io_.stop();
    thread_.join();
    listener_.reset();
    server_.reset();
  }

  uint16_t port() const { return port_; }

  // Runs `action` on the server's thread and waits for it.
  void with(std::function<void(StoreServer&)> action) {
    std::promise<void> done;
    boost::asio::post(io_, [&] {
      action(*server_);
      done.set_value();
    });
    done.get_future().wait();
  }
  StoreServer::Counters counters() {
    StoreServer::Counters counters;
    with([&](StoreServer& server) { counters = server.counters(); });
    return counters;
  }
  uint64_t pauses() {
    uint64_t pauses = 0;
    with([&](StoreServer&) { pauses = listener_->pauses(); });
    return pauses;
  }
  // Waits until the counters satisfy `holds`. The server runs between the samples.
  void wait_until(const std::function<bool(const StoreServer::Counters&)>& holds) {
    test::wait_for([&] { return holds(counters()); }, "what the server's counters tell");
  }

 private:
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<StoreListener> listener_;
  uint16_t port_ = 0;
  std::thread thread_;
};

class RawClient {
 public:
  explicit RawClient(uint16_t port, bool validate = true) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const timeval limit{20, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) std::abort();
    if (validate) say(kValidate);
  }
  RawClient(RawClient&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  ~RawClient() { hang_up(); }

  void hang_up() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  int fd() const { return fd_; }

  // Sends all bytes unless the server closes the connection.
  void say(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
  }

  // Returns the next `size` bytes, or fewer if the server closes the connection.
  std::string hear(size_t size) const {
    std::string bytes(size, '\0');
    size_t heard = 0;
    while (heard < size) {
      const ssize_t n = ::recv(fd_, bytes.data() + heard, size - heard, 0);
      if (n <= 0) break;
      heard += static_cast<size_t>(n);
    }
    bytes.resize(heard);
    return bytes;
  }
  std::string ask(std::string_view request, size_t reply_size) const {
    say(request);
    return hear(reply_size);
  }

  // Returns the bytes that the socket holds now.
  std::string hear_now() const {
    char bytes[4096];
    const ssize_t n = ::recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT);
    return n > 0 ? std::string(bytes, static_cast<size_t>(n)) : std::string();
  }

  // Waits for the end of the stream; returns true if no byte came before it.
  bool hears_the_end() const {
    char byte = 0;
    errno = 0;
    const ssize_t n = ::recv(fd_, &byte, 1, 0);
    return n == 0 || (n < 0 && errno == ECONNRESET);
  }

 private:
  int fd_ = -1;
};

}  // namespace muster::store_test
