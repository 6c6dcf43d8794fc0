// Helpers of the tests of rendezvous/net: running the loop until a condition holds, and plain
// sockets that play the other side. Single thread.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/net/address.h"

namespace muster {

inline std::chrono::steady_clock::time_point in(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

// Generous: only a failing test waits this long.
inline constexpr std::chrono::seconds kLimit{30};

inline void turn_until(boost::asio::io_context& io, const std::function<bool()>& done,
                       const char* what) {
  const auto deadline = std::chrono::steady_clock::now() + kLimit;
  io.restart();
  while (!done()) {
    if (io.run_one_until(deadline) == 0) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "never happened: " << what;
      ADD_FAILURE() << "the loop ran out of work before: " << what;
      return;
    }
  }
}

// Runs `body` on a thread in a new network namespace, which has only loopback and in which sysctls
// may be set. Skips the test if the process may not create one.
inline void in_own_network(const std::function<void()>& body) {
  bool made = false;
  std::thread([&] {
    if (unshare(CLONE_NEWNET) != 0) return;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq lo{};
    std::strcpy(lo.ifr_name, "lo");
    lo.ifr_flags = IFF_UP;
    made = ioctl(fd, SIOCSIFFLAGS, &lo) == 0;
    ::close(fd);
    if (made) body();
  }).join();
  if (!made) GTEST_SKIP() << "needs the right to make a network namespace";
}

inline void set_sysctl(const std::string& name, const std::string& value) {
  std::ofstream file("/proc/sys/" + name);
  file << value;
  file.close();
  ASSERT_TRUE(file.good()) << name;
}

// Lowers this process's limit of descriptors while it exists: at most `left` more can be opened.
class OutOfDescriptors {
 public:
  explicit OutOfDescriptors(rlim_t left = 0) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const int lowest = dup(0);
    ::close(lowest);
    const rlimit tight{static_cast<rlim_t>(lowest) + left, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  }
  OutOfDescriptors(const OutOfDescriptors&) = delete;
  OutOfDescriptors& operator=(const OutOfDescriptors&) = delete;
  ~OutOfDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

inline int option_of(int fd, int level, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  EXPECT_EQ(getsockopt(fd, level, name, &value, &length), 0);
  return value;
}

class PlainSocket {
 public:
  explicit PlainSocket(int fd) : fd_(fd) {}
  PlainSocket(PlainSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  PlainSocket& operator=(PlainSocket&&) = delete;
  ~PlainSocket() {
    if (fd_ >= 0) ::close(fd_);
  }

  // Blocks. On failure fd() is -1 and errno is set.
  static PlainSocket connected_to(const SocketAddress& address) {
    sockaddr_storage raw{};
    const socklen_t length = address.to_sockaddr(raw);
    const int fd = socket(raw.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<sockaddr*>(&raw), length) == 0) return PlainSocket(fd);
    ::close(fd);
    return PlainSocket(-1);
  }

  // Bound to a free port, listening unless `backlog` is negative.
  static PlainSocket bound_to(const SocketAddress& address, int backlog = 16) {
    sockaddr_storage raw{};
    const socklen_t length = address.to_sockaddr(raw);
    const int fd = socket(raw.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&raw), length), 0) << std::strerror(errno);
    EXPECT_TRUE(backlog < 0 || listen(fd, backlog) == 0);
    return PlainSocket(fd);
  }

  SocketAddress own_address() const {
    sockaddr_storage raw{};
    socklen_t length = sizeof raw;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&raw), &length);
    return SocketAddress::from_sockaddr(reinterpret_cast<const sockaddr*>(&raw))
        .value_or(SocketAddress{});
  }

  PlainSocket accept_one() const { return PlainSocket(accept(fd_, nullptr, nullptr)); }

  void send_text(std::string_view text) const {
    ASSERT_EQ(send(fd_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }

  // Returns bytes that arrive within the limit, or "" at the end of the stream.
  std::string receive() const {
    pollfd waiting{fd_, POLLIN, 0};
    EXPECT_EQ(poll(&waiting, 1, 30'000), 1) << "nothing came";
    char buffer[4096];
    const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
    return n > 0 ? std::string(buffer, static_cast<size_t>(n)) : "";
  }

  bool has_ended() const {
    pollfd waiting{fd_, POLLIN, 0};
    char byte;
    return poll(&waiting, 1, 0) == 1 && recv(fd_, &byte, 1, MSG_PEEK) <= 0;
  }

  int fd() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// A process of the user `uid` that connects to `place` and holds the connection while this exists.
// Needs root.
class OtherUser {
 public:
  OtherUser(uid_t uid, const SocketAddress& place) {
    EXPECT_EQ(::pipe2(over_, O_CLOEXEC), 0);
    child_ = ::fork();
    if (child_ != 0) return;
    ::close(over_[1]);
    if (::setuid(uid) != 0) _exit(1);
    const PlainSocket client = PlainSocket::connected_to(place);
    char byte;
    if (client.fd() >= 0) static_cast<void>(::read(over_[0], &byte, 1));  // Until the end.
    _exit(client.fd() < 0);
  }
  OtherUser(const OtherUser&) = delete;
  OtherUser& operator=(const OtherUser&) = delete;
  ~OtherUser() {
    ::close(over_[1]);
    ::close(over_[0]);
    ::waitpid(child_, nullptr, 0);
  }

 private:
  int over_[2] = {-1, -1};
  pid_t child_ = -1;
};

}  // namespace muster
