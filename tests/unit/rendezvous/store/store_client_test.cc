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

#include "tests/unit/rendezvous/store/store_server_harness.h"

namespace muster {
namespace {

using namespace store_test;
using std::chrono::milliseconds;
using std::chrono::seconds;
using tcpstore::Reply;
using tcpstore::ReplyDecoder;
using tcpstore::Shape;

// ---- the answers' decoder

struct Expected {
  Shape shape;
  size_t strings;
  std::string bytes;
  Reply reply;
};

std::vector<Expected> every_shape() {
  return {{Shape::none, 0, "", {0, {}}},
          {Shape::flag, 0, hex("01"), {1, {}}},
          {Shape::nonce, 0, hex("7c3c0000"), {0x3c7c, {}}},
          {Shape::number, 0, hex("feffffffffffffff"), {-2, {}}},
          {Shape::strings, 0, "", {0, {}}},
          {Shape::strings, 1, str("value"), {0, {"value"}}},
          {Shape::strings, 3, str("a") + str("") + str("ccc"), {0, {"a", "", "ccc"}}},
          {Shape::names, 0, i64(0), {0, {}}},
          {Shape::names, 0, i64(2) + str("/k") + str(""), {2, {"/k", ""}}}};
}

TEST(ReplyDecoder, EveryShapeInPiecesOfEverySize) {
  for (const Expected& expected : every_shape()) {
    for (size_t size = 1; size <= expected.bytes.size() + 1; size++) {
      ReplyDecoder decoder(expected.shape, expected.strings);
      std::string_view none;
      auto outcome = decoder.next(none);
      for (size_t at = 0; at < expected.bytes.size(); at += size) {
        ASSERT_EQ(outcome, ReplyDecoder::Decoded::more);
        std::string_view piece = std::string_view(expected.bytes).substr(at, size);
        outcome = decoder.next(piece);
        ASSERT_TRUE(piece.empty());
      }
      ASSERT_EQ(outcome, ReplyDecoder::Decoded::reply);
      EXPECT_EQ(decoder.take(), expected.reply);
    }
  }
}

TEST(ReplyDecoder, LeavesWhatBelongsToTheNextAnswer) {
  ReplyDecoder decoder(Shape::strings, 1);
  const std::string bytes = str("value") + "rest";
  std::string_view input(bytes);
  EXPECT_EQ(decoder.next(input), ReplyDecoder::Decoded::reply);
  EXPECT_EQ(input, "rest");
}

ReplyDecoder::Decoded outcome_of(Shape shape, const std::string& bytes, size_t most) {
  ReplyDecoder decoder(shape, 1, most);
  std::string_view input(bytes);
  return decoder.next(input);
}

TEST(ReplyDecoder, AnAnswerBeyondTheLimitIsMalformed) {
  EXPECT_EQ(outcome_of(Shape::strings, str(std::string(92, 'v')), 100),
            ReplyDecoder::Decoded::reply);
  EXPECT_EQ(outcome_of(Shape::strings, i64(93), 100), ReplyDecoder::Decoded::malformed);
  EXPECT_EQ(outcome_of(Shape::strings, i64(-1), 100), ReplyDecoder::Decoded::malformed);
  EXPECT_EQ(outcome_of(Shape::names, i64(-1), 100), ReplyDecoder::Decoded::malformed);
  EXPECT_EQ(outcome_of(Shape::names, i64(13), 100), ReplyDecoder::Decoded::malformed);
}

// ---- the requests: as PyTorch's client was seen to write them

TEST(StoreCalls, WriteWhatPyTorchWrites) {
  const StoreKeys keys;
  EXPECT_EQ(calls::validate().request.bytes, kValidate);
  EXPECT_EQ(calls::ping(0x3c7c).request.bytes, hex("0d 7c3c0000"));
  EXPECT_EQ(calls::set(keys, "k", "v").request.bytes,
            hex("01 0200000000000000 2f6b 0100000000000000 76"));
  EXPECT_EQ(calls::get(keys, "k").request.bytes, hex("03 0200000000000000 2f6b"));
  EXPECT_EQ(calls::add(keys, "n", -7).request.bytes,
            hex("04 0200000000000000 2f6e f9ffffffffffffff"));
  EXPECT_EQ(calls::compare_set(keys, "c", "", "1").request.bytes, compare_set("/c", "", "1"));
  EXPECT_EQ(calls::check(keys, {"k", "n"}).request.bytes, check({"/k", "/n"}));
  EXPECT_EQ(calls::wait(keys, {"k"}).request.bytes, wait({"/k"}));
  EXPECT_EQ(calls::num_keys().request.bytes, hex("07"));
  EXPECT_EQ(calls::delete_key(keys, "c").request.bytes, delete_key("/c"));
  EXPECT_EQ(calls::append(keys, "a", "x").request.bytes, append("/a", "x"));
  EXPECT_EQ(calls::multi_get(keys, {"m1", "m2"}).request.bytes, multi_get({"/m1", "/m2"}));
  EXPECT_EQ(calls::cancel_wait_bytes(), cancel_wait());
  EXPECT_EQ(calls::list_keys().request.bytes, hex("11"));
}

TEST(StoreCalls, PrefixesNestAsPyTorchsDo) {
  EXPECT_EQ(StoreKeys().full("k"), "/k");
  EXPECT_EQ(StoreKeys("a").full("k"), "/a/k");
  EXPECT_EQ(StoreKeys("a").nested("b").full("k"), "/a/b/k");
  EXPECT_EQ(StoreKeys("a").stripped("/a/b/k"), "b/k");
  EXPECT_EQ(StoreKeys("a").stripped("/ab/k"), std::nullopt);
  EXPECT_EQ(StoreKeys().stripped("init/"), std::nullopt);
}

TEST(StoreCalls, WhatTheServerWouldHangUpOnIsAnError) {
  const StoreKeys keys;
  EXPECT_EQ(calls::get(keys, std::string(8191, 'k')).request.error, std::nullopt);
  EXPECT_EQ(calls::set(keys, std::string(8192, 'k'), "").request.error->message,
            "cannot send SET " + std::string(8192, 'k') +
                " to the store: a key of 8193 bytes is more than 8192; use a shorter key");
  EXPECT_EQ(calls::set(keys, "k", std::string((8 << 20) + 1, 'v')).request.error->message,
            "cannot send SET k to the store: a value of 8388609 bytes is more than 8388608; split "
            "the value");
  EXPECT_EQ(calls::check(keys, std::vector<std::string>(131073, "k")).request.error->message,
            "cannot send CHECK k and 131072 more to the store: a list of 131073 keys is more than "
            "131072; split the list");
  const std::vector<std::string> large(8192, std::string(8191, 'k'));
  EXPECT_THAT(calls::check(keys, large).request.error->message,
              testing::EndsWith("to the store: a request of 67174409 bytes is more than 67108864; "
                                "split the request"));
}

// ---- the blocking client

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

TEST(StoreClient, LargeValuesAndListsPass) {
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

// A server that answers to nothing before it has read all of what is to come, then in pieces.
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

TEST(StoreClient, ManyKeysAreDeletedWithoutWaitingForEachAnswer) {
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
    EXPECT_FALSE(client.delete_keys({"a", std::string(9000, 'k')})) << "nothing of it is sent";
    EXPECT_TRUE(client.connected());
  }
  server.join();
}

TEST(StoreClient, GetWaitsForAnother) {
  const RunningStore store;
  StoreClient client = connected(store);
  std::thread other([&] {
    StoreClient setter = connected(store);
    EXPECT_EQ(setter.set("late", "v"), Nothing{});
  });
  EXPECT_EQ(client.get("late"), "v");
  other.join();
}

TEST(StoreClient, AWaitThatTimesOutIsTakenBackAndTheConnectionLives) {
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

TEST(StoreClient, ManyWaitsThatRaceTheirTimeOutStayInStep) {
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

TEST(StoreClient, TheEndOfTheEpochIsSaid) {
  RunningStore store;
  StoreClient client = connected(store);
  store.with([](StoreServer& server) { server.open(2); });
  const auto got = client.ping(1);
  ASSERT_FALSE(got);
  EXPECT_THAT(got.error().message, testing::HasSubstr("the job's round has probably ended"));
  EXPECT_FALSE(client.connected());
  EXPECT_EQ(client.add("n", 1).error(), got.error());
}

TEST(StoreClient, AnOversizedKeyCostsNothing) {
  const RunningStore store;
  StoreClient client = connected(store);
  EXPECT_FALSE(client.set(std::string(9000, 'k'), "v"));
  EXPECT_TRUE(client.connected());
  EXPECT_EQ(client.num_keys(), 0);
}

// Listens; the first `answered` clients are sent `answer`.
class Impostor {
 public:
  explicit Impostor(std::string answer, size_t answered = SIZE_MAX)
      : answer_(std::move(answer)), answered_(answered) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (::bind(fd_, reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(fd_, 8) != 0 ||
        ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      std::abort();
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~Impostor() {
    ::shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }
  uint16_t port() const { return port_; }

 private:
  void serve() {
    std::vector<int> accepted;
    for (int fd = 0; (fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      accepted.push_back(fd);
      if (accepted.size() <= answered_) ::send(fd, answer_.data(), answer_.size(), MSG_NOSIGNAL);
    }
    for (const int fd : accepted)
      ::close(fd);
  }

  std::string answer_;
  size_t answered_;
  int fd_ = -1;
  uint16_t port_ = 0;
  std::thread thread_;
};

TEST(StoreClient, AMuteServerCostsTheTimeOutOnly) {
  const Impostor mute("");
  const auto client = StoreClient::connect(
      {.host = "127.0.0.1", .port = mute.port(), .connect_timeout = milliseconds(50)});
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, ExitCode::rendezvous);
  EXPECT_THAT(client.error().message,
              testing::AllOf(testing::StartsWith("cannot reach the store 127.0.0.1:"),
                             testing::HasSubstr("got no answer within")));
}

// It answers once only: what it said stands, though the last tries have met silence.
TEST(StoreClient, AnotherKindOfServerIsRecognised) {
  const Impostor other("220 mail.example.org ESMTP\r\n", 1);
  const auto client = StoreClient::connect(
      {.host = "127.0.0.1", .port = other.port(), .connect_timeout = milliseconds(900)});
  ASSERT_FALSE(client);
  EXPECT_THAT(client.error().message,
              testing::HasSubstr("is not from a store; check that the address"));
}

TEST(StoreClient, NobodyThereIsSaidWithTheReason) {
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

// Pauses grow to a second, and one that would end too late is not the end: whoever comes shortly
// before the time is over is found.
TEST(StoreClient, TriesUntilItsTimeIsOver) {
  const uint16_t port = RunningStore().port();
  const auto begun = std::chrono::steady_clock::now();
  const auto client = StoreClient::connect(
      {.host = "127.0.0.1", .port = port, .connect_timeout = milliseconds(1200)});
  EXPECT_FALSE(client);
  EXPECT_GT(std::chrono::steady_clock::now() - begun, milliseconds{1100});
}

}  // namespace
}  // namespace muster
