#include "rendezvous/net/resolve.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/rendezvous/net/addresses.h"
#include "tests/unit/rendezvous/net/socket_harness.h"

namespace muster {
namespace {

using testing::Contains;
using testing::HasSubstr;

using Answer = NetResult<std::vector<SocketAddress>>;

// A name server that does not answer before release_and_wait_for().
struct HungServer {
  std::mutex mutex;
  std::condition_variable changed;
  bool let_go = false;
  int waiting = 0;
  int answered = 0;

  NetResult<std::vector<IpAddress>> look_up() {
    std::unique_lock lock(mutex);
    ++waiting;
    changed.notify_all();
    changed.wait(lock, [&] { return let_go; });
    ++answered;
    changed.notify_all();
    return std::vector{IpAddress::loopback_v4()};
  }
  void release_and_wait_for(int count) {
    std::unique_lock lock(mutex);
    let_go = true;
    changed.notify_all();
    changed.wait(lock, [&] { return answered == count; });
  }
};

LookUp asking(const std::shared_ptr<HungServer>& server) {
  return [server](const std::string&) { return server->look_up(); };
}

TEST(NumericAddress, UnderstandsBracketsAndScopesByName) {
  EXPECT_EQ(numeric_address("10.0.0.1"), IpAddress::parse("10.0.0.1"));
  EXPECT_EQ(numeric_address("[::1]"), IpAddress::loopback_v6());
  const auto scoped = numeric_address("[fe80::1%lo]");
  ASSERT_TRUE(scoped);
  EXPECT_EQ(*scoped, IpAddress::parse("fe80::1%1"));
  EXPECT_EQ(numeric_address("fe80::1%nosuch0"), std::nullopt);
  EXPECT_EQ(numeric_address("localhost"), std::nullopt);
}

TEST(Resolver, AnswersNumericAddressesWithoutALookUp) {
  boost::asio::io_context io;
  Resolver resolver(io, [](const std::string&) -> NetResult<std::vector<IpAddress>> {
    ADD_FAILURE() << "looked up";
    return {};
  });
  std::vector<Answer> answers;
  resolver.resolve("fd00::7", 29500, in(kLimit), [&](Answer got) { answers.push_back(got); });
  EXPECT_TRUE(answers.empty());  // Never from inside resolve().
  io.run();
  EXPECT_EQ(answers, std::vector<Answer>{std::vector{socket_at("[fd00::7]:29500")}});
}

TEST(Resolver, LooksUpNamesOnAThreadAndAnswersOnTheLoop) {
  boost::asio::io_context io;
  std::thread::id looked_up_on;
  Resolver resolver(io, [&](const std::string& host) -> NetResult<std::vector<IpAddress>> {
    looked_up_on = std::this_thread::get_id();
    EXPECT_EQ(host, "node1");
    return std::vector{*IpAddress::parse("10.0.0.1"), *IpAddress::parse("fd00::1")};
  });
  Answer answer;
  std::thread::id answered_on;
  resolver.resolve("node1", 4, in(kLimit), [&](Answer got) {
    answer = got;
    answered_on = std::this_thread::get_id();
  });
  io.run();
  EXPECT_EQ(answer, (std::vector{socket_at("10.0.0.1:4"), socket_at("[fd00::1]:4")}));
  EXPECT_EQ(answered_on, std::this_thread::get_id());
  EXPECT_NE(looked_up_on, std::this_thread::get_id());
}

TEST(Resolver, FindsLocalhostWithTheRealResolver) {
  boost::asio::io_context io;
  Resolver resolver(io);
  Answer answer;
  resolver.resolve("localhost", 4, in(kLimit), [&](Answer got) { answer = got; });
  io.run();
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_THAT(*answer, Contains(socket_at("127.0.0.1:4")));
}

TEST(Resolver, ReportsAMissingName) {
  // RFC 6761 reserves .invalid. Without a name server the resolver itself fails, which also counts.
  const auto missing = look_up_by_getaddrinfo("nosuchhost.invalid");
  ASSERT_FALSE(missing);
  EXPECT_TRUE(missing.error().name_is_missing());
  EXPECT_THAT(missing.error().message, HasSubstr("the name 'nosuchhost.invalid' "));
  EXPECT_EQ(missing.error().error().code, ExitCode::rendezvous);
}

TEST(Resolver, GivesUpAtTheDeadlineAndIgnoresALateAnswer) {
  const auto server = std::make_shared<HungServer>();
  boost::asio::io_context io;
  Resolver resolver(io, asking(server));
  std::vector<Answer> answers;
  resolver.resolve("node1", 4, in(std::chrono::milliseconds(20)),
                   [&](Answer got) { answers.push_back(got); });
  io.run();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].error(), (NetError{NetFailure::resolver,
                                          "the name 'node1' could not be looked up in time; check "
                                          "/etc/resolv.conf and the name server"}));
  server->release_and_wait_for(1);
  io.restart();
  io.run();
  EXPECT_EQ(answers.size(), 1u);
}

TEST(Resolver, CanBeDestroyedWithItsLoopDuringALookUp) {
  const auto server = std::make_shared<HungServer>();
  bool called = false;
  {
    boost::asio::io_context io;
    Resolver resolver(io, asking(server));
    resolver.resolve("node1", 4, in(kLimit), [&](const Answer&) { called = true; });
  }
  server->release_and_wait_for(1);
  EXPECT_FALSE(called);
}

TEST(Resolver, CanBeDestroyedInsideItsCallback) {
  boost::asio::io_context io;
  auto resolver = std::make_unique<Resolver>(io);
  bool called = false;
  resolver->resolve("127.0.0.1", 4, in(kLimit), [&](const Answer&) {
    called = true;
    resolver.reset();
  });
  io.run();
  EXPECT_TRUE(called);
}

TEST(Resolver, NeverHasMoreThreadsThanItsLimit) {
  const auto server = std::make_shared<HungServer>();
  boost::asio::io_context io;
  Resolver resolver(io, asking(server));
  std::vector<std::string> refusals;
  int answered = 0;
  // Threads of earlier tests may still be ending, so more than three may be refused.
  for (int i = 0; i < kLookupsMax + 3; ++i) {
    resolver.resolve("node1", 4, in(kLimit), [&](const Answer& got) {
      ++answered;
      if (!got) refusals.push_back(got.error().message);
    });
  }
  io.poll();
  ASSERT_GE(refusals.size(), 3U);
  EXPECT_EQ(refusals[0],
            "the name 'node1' was not looked up: 16 earlier look-ups are still without an "
            "answer; check the name server");
  const int running = kLookupsMax + 3 - static_cast<int>(refusals.size());
  EXPECT_LE(running, kLookupsMax);
  server->release_and_wait_for(running);
  turn_until(io, [&] { return answered == kLookupsMax + 3; }, "every look-up is answered");
}

}  // namespace
}  // namespace muster
