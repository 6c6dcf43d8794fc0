#include "rendezvous/store/store_client.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/rendezvous/net/socket_harness.h"
#include "tests/unit/rendezvous/store/store_server_harness.h"

namespace muster {
namespace {

using namespace store_test;
using std::chrono::milliseconds;
using std::chrono::seconds;

StoreClient connected(const RunningStore& store, Duration timeout = seconds(20)) {
  auto client = StoreClient::connect({.host = "127.0.0.1",
                                      .port = store.port(),
                                      .connect_timeout = seconds(20),
                                      .timeout = timeout});
  if (!client) {
    ADD_FAILURE() << client.error().message;
    std::abort();
  }
  return *client;
}

TEST(StoreClient, PerformsEveryOperation) {
  const RunningStore store;
  StoreClient client = connected(store);
  EXPECT_EQ(client.set("k", "v"), Nothing{});
  EXPECT_EQ(client.get("k"), "v");
  EXPECT_EQ(client.add("n", 5), 5);
  EXPECT_EQ(client.add("n", -7), -2);
  EXPECT_EQ(client.check({"k", "n"}), true);
  EXPECT_EQ(client.check({"k", "none"}), false);
  EXPECT_EQ(client.wait({"k"}), Nothing{});
  EXPECT_EQ(client.compare_set("c", "", "1"), "1");
  EXPECT_EQ(client.compare_set("c", "x", "2"), "1");
  EXPECT_EQ(client.append("a", "x"), Nothing{});
  EXPECT_EQ(client.append("a", "y"), Nothing{});
  EXPECT_EQ(client.set("m1", "one"), Nothing{});
  EXPECT_EQ(client.set("m2", ""), Nothing{});
  EXPECT_EQ(client.multi_get({"m1", "m2", "a"}), (std::vector<std::string>{"one", "", "xy"}));
  EXPECT_EQ(client.num_keys(), 6);
  EXPECT_EQ(client.delete_key("m2"), true);
  EXPECT_EQ(client.delete_key("m2"), false);
  EXPECT_EQ(client.list_keys(), (std::vector<std::string>{"k", "n", "c", "a", "m1"}));
  EXPECT_EQ(client.ping(77), 77u);
}

TEST(StoreClient, PrefixesKeepTheirKeysApart) {
  const RunningStore store;
  StoreClient root = connected(store);
  StoreClient one = root.with_prefix("one");
  StoreClient inner = one.with_prefix("inner");
  EXPECT_EQ(one.set("k", "1"), Nothing{});
  EXPECT_EQ(inner.set("k", "2"), Nothing{});
  EXPECT_EQ(root.get("one/k"), "1");
  EXPECT_EQ(root.get("one/inner/k"), "2");
  EXPECT_EQ(one.list_keys(), (std::vector<std::string>{"k", "inner/k"}));
  EXPECT_EQ(inner.list_keys(), (std::vector<std::string>{"k"}));
  EXPECT_EQ(inner.num_keys(), 2);
}

TEST(StoreClient, TransfersLargeValuesAndLists) {
  const RunningStore store;
  StoreClient client = connected(store);
  const std::string value(size_t{8} << 20, 'v');
  EXPECT_EQ(client.set("k", value), Nothing{});
  EXPECT_TRUE(client.get("k") == value);
  calls::Keys names;
  for (int i = 0; i < 20000; i++) {
    names.push_back("key/" + std::to_string(i));
    ASSERT_EQ(client.set(names.back(), std::to_string(i)), Nothing{});
  }
  const auto values = client.multi_get(names);
  ASSERT_TRUE(values);
  EXPECT_EQ(values->size(), 20000u);
  EXPECT_EQ(values->back(), "19999");
  names.front() = "none";
  EXPECT_EQ(client.delete_keys(names), 19999);
  EXPECT_EQ(client.list_keys(), (std::vector<std::string>{"k", "key/0"}));
  EXPECT_EQ(client.delete_keys({}), 0);
}

// Plays a server that reads all requests before it answers any, in pieces.
void answer_all_at_once(int fd, const std::string& expected, const std::string& answers) {
  std::string got(expected.size(), '\0');
  if (::recv(fd, got.data(), got.size(), MSG_WAITALL) == static_cast<ssize_t>(got.size())) {
    EXPECT_EQ(got, expected);
    for (size_t at = 0; at < answers.size(); at += 3) {
      const std::string piece = answers.substr(at, 3);
      EXPECT_EQ(::send(fd, piece.data(), piece.size(), MSG_NOSIGNAL), std::ssize(piece));
    }
  }
  ::close(fd);
}

TEST(StoreClient, PipelinesTheDeletionOfManyKeys) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  ASSERT_EQ(::fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
  std::thread server([fd = ends[1]] {
    answer_all_at_once(fd, kValidate + delete_key("/p/a") + delete_key("/p/b") + delete_key("/p/c"),
                       i64(1) + i64(0) + i64(1));
  });
  {
    StoreClient client = StoreClient::over(ends[0], "server", seconds(20)).with_prefix("p");
    EXPECT_EQ(client.delete_keys({"a", "b", "c"}), 2);
    EXPECT_TRUE(client.connected());
    EXPECT_FALSE(client.delete_keys({"a", std::string(9000, 'k')}))
        << "an oversized key must stop the whole request";
    EXPECT_TRUE(client.connected());
  }
  server.join();
}

TEST(StoreClient, GetWaitsForAnotherClientsSet) {
  const RunningStore store;
  StoreClient client = connected(store);
  std::thread other([&] {
    StoreClient setter = connected(store);
    EXPECT_EQ(setter.set("late", "v"), Nothing{});
  });
  EXPECT_EQ(client.get("late"), "v");
  other.join();
}

TEST(StoreClient, CancelsAWaitThatTimesOutAndStaysConnected) {
  const RunningStore store;
  StoreClient client = connected(store);
  const auto waited = client.wait({"never", "this"}, milliseconds(20));
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error(),
            (Error{ExitCode::rendezvous,
                   "WAIT never and 1 more at the store 127.0.0.1:" + std::to_string(store.port()) +
                       " timed out after 0.02 s; look for the process that should have set it"}));
  EXPECT_TRUE(client.connected());
  EXPECT_FALSE(client.wait({"other"}, milliseconds(0)));
  EXPECT_EQ(client.set("never", "v"), Nothing{});
  EXPECT_EQ(client.get("never"), "v");
}

TEST(StoreClient, StaysInStepIfWaitsRaceTheirTimeOut) {
  const RunningStore store;
  StoreClient client = connected(store);
  StoreClient setter = connected(store);
  std::atomic<int> round{-1};
  std::thread other([&] {
    for (int i = 0; i < 200; i++) {
      while (round < i)
        std::this_thread::yield();
      EXPECT_EQ(setter.set("key" + std::to_string(i), "v"), Nothing{});
    }
  });
  for (int i = 0; i < 200; i++) {
    round = i;
    (void)client.wait({"key" + std::to_string(i)}, std::chrono::microseconds(i * 2));
    ASSERT_EQ(client.ping(static_cast<uint32_t>(i)), static_cast<uint32_t>(i));
  }
  other.join();
}

TEST(StoreClient, ReportsTheEndOfTheEpoch) {
  RunningStore store;
  StoreClient client = connected(store);
  store.with([](StoreServer& server) { server.open(2); });
  const auto got = client.ping(1);
  ASSERT_FALSE(got);
  EXPECT_THAT(got.error().message, testing::HasSubstr("the job's round has probably ended"));
  EXPECT_FALSE(client.connected());
  EXPECT_EQ(client.add("n", 1).error(), got.error());
}

TEST(StoreClient, StaysConnectedAfterAnOversizedKey) {
  const RunningStore store;
  StoreClient client = connected(store);
  EXPECT_FALSE(client.set(std::string(9000, 'k'), "v"));
  EXPECT_TRUE(client.connected());
  EXPECT_EQ(client.num_keys(), 0);
}

// Listens, and sends `answer` to the first `answered` clients.
class Impostor {
 public:
  explicit Impostor(std::string answer, size_t answered = SIZE_MAX)
      : answer_(std::move(answer)), answered_(answered) {
    thread_ = std::thread([this] { serve(); });
  }
  ~Impostor() {
    ::shutdown(listening_.fd(), SHUT_RDWR);
    thread_.join();
  }
  uint16_t port() const { return listening_.own_address().port; }

 private:
  void serve() {
    std::vector<int> accepted;
    for (int fd = 0; (fd = ::accept4(listening_.fd(), nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      accepted.push_back(fd);
      if (accepted.size() <= answered_) ::send(fd, answer_.data(), answer_.size(), MSG_NOSIGNAL);
    }
    for (const int fd : accepted)
      ::close(fd);
  }

  std::string answer_;
  size_t answered_;
  const PlainSocket listening_ = PlainSocket::bound_to({IpAddress::loopback_v4(), 0});
  std::thread thread_;
};

TEST(StoreClient, GivesUpOnAMuteServerAtTheTimeOut) {
  const Impostor mute("");
  const auto client = StoreClient::connect(
      {.host = "127.0.0.1", .port = mute.port(), .connect_timeout = milliseconds(50)});
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, ExitCode::rendezvous);
  EXPECT_THAT(client.error().message,
              testing::AllOf(testing::StartsWith("cannot reach the store 127.0.0.1:"),
                             testing::HasSubstr("got no answer within")));
}

// The server answers only once; the error keeps that answer although later attempts meet silence.
TEST(StoreClient, RecognisesAnotherKindOfServer) {
  const Impostor other("220 mail.example.org ESMTP\r\n", 1);
  const auto client = StoreClient::connect(
      {.host = "127.0.0.1", .port = other.port(), .connect_timeout = milliseconds(900)});
  ASSERT_FALSE(client);
  EXPECT_THAT(client.error().message,
              testing::HasSubstr("is not from a store; check that the address"));
}

TEST(StoreClient, SaysWhyNoServerAnswers) {
  uint16_t port = 0;
  {
    port = RunningStore().port();
  }
  const auto client = StoreClient::connect(
      {.host = "127.0.0.1", .port = port, .connect_timeout = milliseconds(50)});
  ASSERT_FALSE(client);
  EXPECT_THAT(client.error().message,
              testing::AllOf(testing::HasSubstr("within 0.05 s"), testing::HasSubstr("refused")));
}

// Pauses grow to a second. A pause that would end too late is cut, so that a server that appears
// shortly before the deadline is found.
TEST(StoreClient, TriesUntilTheDeadline) {
  const uint16_t port = RunningStore().port();
  const auto begun = std::chrono::steady_clock::now();
  const auto client = StoreClient::connect(
      {.host = "127.0.0.1", .port = port, .connect_timeout = milliseconds(1200)});
  EXPECT_FALSE(client);
  EXPECT_GT(std::chrono::steady_clock::now() - begun, milliseconds{1100});
}

}  // namespace
}  // namespace muster
