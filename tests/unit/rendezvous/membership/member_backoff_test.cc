// When an agent reconnects: after failures, after short connections, and for a rank that its
// previous process may still hold; and how it describes its past on the next connection.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/rendezvous/membership/member_harness.h"

namespace muster {
namespace {

using namespace membership;  // NOLINT: the words of the protocol
using std::chrono::milliseconds;
using std::chrono::seconds;

// Prints no status lines, which would come between a test and the next attempt.
Member::Options silent_options() {
  Member::Options options = member_options();
  options.first_status = options.status_cap = seconds{3600};
  return options;
}

// Expects half to one and a half of the back-off.
void expect_pause_of(const MemberDriver& m, Duration backoff) {
  EXPECT_GE(m.until_deadline(), backoff / 2) << backoff / milliseconds{1} << " ms";
  EXPECT_LE(m.until_deadline(), backoff * 3 / 2) << backoff / milliseconds{1} << " ms";
}

// Connects after a pause, is welcomed after `handshake`, and breaks after `life`.
void connect_for(MemberDriver& m, Duration handshake, Duration life) {
  m.redial();
  m.pass(handshake);
  m.welcome();
  m.pass(life);
  m.step(connection_lost("connection reset by peer"));
}

TEST(MemberBackoff, GrowsIfTheHostWelcomesAndDropsUsAtOnce) {
  MemberDriver m(silent_options());
  m.join();
  m.step(connection_lost("connection reset by peer"));
  std::vector<Duration> expected;
  for (const int ms : {20, 40, 80, 160, 320, 640, 1000, 1000, 1000})
    expected.push_back(milliseconds{ms});
  for (const Duration backoff : expected) {
    expect_pause_of(m, backoff);
    connect_for(m, milliseconds{5}, milliseconds{1});
  }
}

TEST(MemberBackoff, StaysShortAfterOneYoungConnection) {
  MemberDriver m(silent_options());
  m.join();
  m.pass(milliseconds{1});
  m.step(connection_lost("connection reset by peer"));
  // The host's grace for a reconnect is short.
  EXPECT_LE(m.until_deadline(), milliseconds{30});
}

TEST(MemberBackoff, RestartsAfterAConnectionThatHeld) {
  MemberDriver m(silent_options());
  m.join();
  m.step(connection_lost("reset"));
  for (int i = 0; i < 8; ++i)
    connect_for(m, milliseconds{1}, milliseconds{1});
  expect_pause_of(m, seconds{1});
  connect_for(m, milliseconds{1}, seconds{1});
  expect_pause_of(m, milliseconds{20});
  connect_for(m, milliseconds{1}, milliseconds{999});
  expect_pause_of(m, milliseconds{20});
  connect_for(m, milliseconds{1}, milliseconds{999});
  expect_pause_of(m, milliseconds{40});
}

TEST(MemberBackoff, GrowsWithEachFailureUpToItsCap) {
  MemberDriver m(silent_options());
  m.step(member::Begin{});
  for (const int ms : {20, 40, 80, 160, 320, 640, 1000, 1000}) {
    m.step(member::ConnectionFailed{{ExitCode::rendezvous, "timed out"}, false, false});
    expect_pause_of(m, milliseconds{ms});
    m.tick_at_deadline();
  }
}

TEST(MemberBackoff, ContinuesGrowingAfterAYoungConnection) {
  MemberDriver m(silent_options());
  m.join();
  m.step(connection_lost("reset"));
  for (int i = 0; i < 3; ++i)
    connect_for(m, milliseconds{1}, milliseconds{1});
  expect_pause_of(m, milliseconds{160});
  m.tick_at_deadline();
  m.step(member::ConnectionFailed{{ExitCode::rendezvous, "timed out"}, false, false});
  expect_pause_of(m, milliseconds{320});
}

TEST(MemberBackoff, GivesUpAtTheJoinTimeOutIfEveryConnectionIsYoung) {
  MemberDriver m;
  m.join();
  const Instant begun = m.now();
  m.step(connection_lost("connection reset by peer"));
  std::string said;
  while (!m.machine().over() && m.now() - begun < seconds{200}) {
    const MemberEffects effects = m.tick_at_deadline();
    for (const Member::Effect& effect : effects) {
      if (const auto* say = std::get_if<member::Say>(&effect)) said += say->text + "\n";
    }
    if (effects.empty() || !std::holds_alternative<member::Connect>(effects.back())) continue;
    m.come_up();
    m.welcome();
    m.step(connection_lost("connection reset by peer"));
  }
  EXPECT_TRUE(m.machine().over());
  EXPECT_GE(m.now() - begun, seconds{60});
  EXPECT_LE(m.now() - begun, seconds{63});
  EXPECT_NE(said.find("waiting for the host of the job at node0:29400: connection reset by peer"),
            std::string::npos)
      << said;
}

TEST(MemberBackoff, RestartsTheJoinTimeOutAfterAConnectionThatHeld) {
  MemberDriver m;
  m.join();
  for (int i = 0; i < 4; ++i) {
    m.pass(seconds{2});
    m.step(connection_lost("reset"));
    for (int tries = 0; tries < 20; ++tries) {
      m.tick_at_deadline();
      m.step(member::ConnectionFailed{{ExitCode::rendezvous, "timed out"}, false, false});
    }
    ASSERT_FALSE(m.machine().over()) << i;
    while (names_of(m.tick_at_deadline()) != "Connect") {
      ASSERT_FALSE(m.machine().over()) << i;
    }
    m.come_up();
    m.welcome();
  }
}

TEST(MemberBackoff, DoesNotCountAConnectionAsYoungAfterAClockJump) {
  MemberDriver m;
  m.join();
  m.alive(1);
  m.pass(seconds{30});
  m.step(member::Tick{});
  m.step(connection_lost("reset"));
  expect_pause_of(m, milliseconds{20});
  connect_for(m, milliseconds{1}, milliseconds{1});
  expect_pause_of(m, milliseconds{20});
}

// ---- Taken ranks.

Refused taken() {
  return {RefusalKind::rank_taken, "node rank 1 belongs to b already"};
}

TEST(MemberRank, IsRequestedOftenEnoughWhileTheOldProcessHoldsIt) {
  MemberDriver m(silent_options());
  m.step(member::Begin{});
  for (int tries = 0; tries < 11; ++tries) {
    m.come_up();
    EXPECT_EQ(names_of(m.hear(taken())), "Disconnect") << tries;
    EXPECT_LE(m.until_deadline(), milliseconds{500});
    EXPECT_EQ(names_of(m.tick_at_deadline()), "Connect") << tries;
  }
}

TEST(MemberRank, IsGivenUpAfterTwoLeases) {
  MemberDriver m;
  m.step(member::Begin{});
  const Instant begun = m.now();
  MemberEffects effects;
  for (int tries = 0; tries < 1000 && !m.machine().over(); ++tries) {
    m.come_up();
    effects = m.hear(taken());
    while (!m.machine().over() && names_of(effects).find("Connect") != 0)
      effects = m.tick_at_deadline();
  }
  EXPECT_EQ(names_of(effects), "Disconnect GaveUp");
  EXPECT_GE(m.now() - begun, seconds{6});
  EXPECT_LE(m.now() - begun, milliseconds{6500});
}

// A host that lets us queue and then refuses us again must not keep us for ever.
TEST(MemberRank, IsGivenUpEvenIfTheHostSometimesLetsUsQueue) {
  MemberDriver m;
  m.step(member::Begin{});
  const Instant begun = m.now();
  MemberEffects effects;
  for (int tries = 0; tries < 1000 && !m.machine().over(); ++tries) {
    m.come_up();
    if (tries % 2 == 0) m.welcome();
    effects = m.hear(taken());
    while (!m.machine().over() && names_of(effects) != "Connect")
      effects = m.tick_at_deadline();
  }
  EXPECT_EQ(names_of(effects), "Disconnect GaveUp");
  EXPECT_LE(m.now() - begun, seconds{8});
}

TEST(MemberRank, IsRequestedWithFullPatienceAfterARound) {
  MemberDriver m;
  m.dial();
  m.hear(taken());
  m.redial();
  m.welcome();
  m.order(round_of(1));
  m.pass(seconds{2});
  m.alive(1);
  m.pass(seconds{2});
  m.alive(2);
  m.pass(seconds{2});
  m.alive(3);
  m.pass(seconds{2});
  EXPECT_EQ(names_of(m.hear(taken())), "Disconnect StopWorkers");
  EXPECT_FALSE(m.machine().over());
}

// ---- The past of an agent.

Join join_in(const MemberEffects& effects) {
  for (const Member::Effect& effect : effects) {
    if (const auto* connect = std::get_if<member::Connect>(&effect)) return connect->join;
  }
  ADD_FAILURE() << "no connection is asked for";
  return {};
}

Join next_join(MemberDriver& m) {
  m.step(connection_lost("reset"));
  return join_in(m.tick_at_deadline());
}

TEST(MemberPast, NamesTheRoundAndTheHostThatFormedIt) {
  MemberDriver m;
  m.join();
  Join join = next_join(m);
  EXPECT_EQ(join.last_epoch, 0u);
  EXPECT_EQ(join.last_instance, 0u);
  m.come_up();
  m.welcome();
  m.order(round_of(1));
  join = next_join(m);
  EXPECT_EQ(join.last_epoch, 1u);
  EXPECT_EQ(join.last_instance, MemberDriver::kHost);
}

TEST(MemberPast, IsNotChangedByAnotherHostsWelcomeAlone) {
  MemberDriver m;
  m.run(3);
  m.step(connection_lost("reset"));
  m.redial();
  m.welcome(99);
  m.step(member::ReadyForRound{});
  const Join before = next_join(m);
  EXPECT_EQ(before.last_epoch, 3u);
  EXPECT_EQ(before.last_instance, MemberDriver::kHost);
  m.come_up();
  m.welcome(99);
  m.order(round_of(4));
  const Join after = next_join(m);
  EXPECT_EQ(after.last_epoch, 4u);
  EXPECT_EQ(after.last_instance, 99u);
}

TEST(MemberPast, IncludesAStoppedRoundThatWasNeverOrdered) {
  MemberDriver m;
  m.join();
  m.step(member::ReadyForRound{});
  m.order(Stop{5, StopWhy::failure, "rank 0 failed"});
  const Join join = next_join(m);
  EXPECT_EQ(join.last_epoch, 5u);
  EXPECT_EQ(join.last_instance, MemberDriver::kHost);
}

}  // namespace
}  // namespace muster
