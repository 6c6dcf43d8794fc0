#include "worker_lib/stream_socket.h"

#include <array>
#include <cerrno>
#include <set>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/random.h"
#include "rendezvous/net/listening_socket.h"

namespace muster::worker {
namespace {

bool is_ready(int fd, short events, int limit_ms = 0) {
  pollfd asked{fd, events, 0};
  return poll(&asked, 1, limit_ms) == 1;
}

// A name that is not taken on this machine.
std::string fresh_name() {
  static int made = 0;
  return "muster-stream-socket-test-" + std::to_string(getpid()) + "-" + std::to_string(++made);
}

bool is_quiet_and_private(int fd) {
  return (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC;
}

int option_of(int fd, int level, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  return getsockopt(fd, level, name, &value, &length) == 0 ? value : -errno;
}

// ---- connections within the node

TEST(StreamSocket, ALocalConnectionCarriesBytesWithoutBlocking) {
  const std::string name = fresh_name();
  const Socket listener = listen_local(name);
  ASSERT_TRUE(listener);
  EXPECT_TRUE(is_quiet_and_private(listener.get()));
  const auto [dialled, error] = dial_local(name);
  ASSERT_EQ(error, 0);
  EXPECT_TRUE(is_quiet_and_private(dialled.get()));
  const Socket accepted(accept(listener.get(), nullptr, nullptr));
  ASSERT_TRUE(accepted);
  ASSERT_EQ(send(dialled.get(), "four", 4, 0), 4);
  std::array<char, 8> heard{};
  EXPECT_EQ(recv(accepted.get(), heard.data(), heard.size(), 0), 4);
  EXPECT_EQ(std::string(heard.data()), "four");
  EXPECT_TRUE(is_own_user(accepted.get()));
  EXPECT_TRUE(is_own_user(dialled.get()));
  // Options of TCP do not apply to such a connection.
  const int buffer = option_of(dialled.get(), SOL_SOCKET, SO_SNDBUF);
  set_no_delay(dialled.get());
  fit_buffers(dialled.get());
  EXPECT_EQ(option_of(dialled.get(), SOL_SOCKET, SO_SNDBUF), buffer);
}

TEST(StreamSocket, ADialIsRefusedIfNoRankListens) {
  EXPECT_EQ(dial_local(fresh_name()).error, ECONNREFUSED);
}

TEST(StreamSocket, ANameHasOneListener) {
  const std::string name = fresh_name();
  const Socket first = listen_local(name);
  ASSERT_TRUE(first);
  EXPECT_FALSE(listen_local(name));
  EXPECT_EQ(errno, EADDRINUSE);
  EXPECT_TRUE(listen_local(name + "x")) << "a longer name is another one";
}

// ---- connections to other nodes

TEST(StreamSocket, ATcpConnectionSendsSmallMessagesAtOnce) {
  const auto listening = listen_on({{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(listening.has_value());
  const auto [dialled, error] = dial(listening->front().address);
  ASSERT_TRUE(error == 0 || error == EINPROGRESS) << error;
  EXPECT_TRUE(is_quiet_and_private(dialled.get()));
  EXPECT_EQ(option_of(dialled.get(), IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_TRUE(is_ready(dialled.get(), POLLOUT, 20'000));
  EXPECT_EQ(option_of(dialled.get(), SOL_SOCKET, SO_ERROR), 0);
  EXPECT_TRUE(is_own_user(dialled.get())) << "a secret authenticates the peer";
}

// The kernel may report the refusal at once, or later through the socket.
TEST(StreamSocket, ARefusedTcpConnectionIsReportedAtOnceOrByTheSocket) {
  auto listening = listen_on({{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(listening.has_value());
  listening->front().fd.reset();
  const auto [dialled, error] = dial(listening->front().address);
  if (error == ECONNREFUSED) return;
  EXPECT_TRUE(is_ready(dialled.get(), POLLOUT, 20'000));
  EXPECT_EQ(option_of(dialled.get(), SOL_SOCKET, SO_ERROR), ECONNREFUSED);
}

TEST(StreamSocket, ADescriptorThatIsNoSocketIsNotOwnUser) {
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  EXPECT_FALSE(is_own_user(pipe_ends[0]));
  EXPECT_FALSE(is_own_user(-1));
  for (const int fd : pipe_ends)
    close(fd);
}

// ---- secrets

TEST(StreamSocket, RandomBytesHaveTheRequestedSizeAndNeverRepeat) {
  EXPECT_EQ(random_bytes(0), "");
  std::set<std::string> made;
  for (const size_t count : {16U, 16U, 16U, 255U, 256U, 257U, 100'000U}) {
    const std::string bytes = random_bytes(count);
    EXPECT_EQ(bytes.size(), count);
    EXPECT_TRUE(made.insert(bytes).second);
    EXPECT_NE(bytes.substr(count - 16), std::string(16, '\0')) << "its end is filled, too";
  }
}

}  // namespace
}  // namespace muster::worker
