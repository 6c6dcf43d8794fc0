#include "agent/job/engine_signals.h"

#include <csignal>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string effect_text(const EngineSignals::Stop& stop) {
  return fmt::format("stop {} {}", stop.signal, stop.told ? "told" : "untold");
}
std::string effect_text(const EngineSignals::Warn& warn) {
  return fmt::format("warn {} {}", warn.signal, warn.told ? "told" : "untold");
}
std::string effect_text(const EngineSignals::Tell& tell) {
  return fmt::format("tell {} {}{}", tell.node, tell.signal, tell.by_engine ? " by engine" : "");
}

class Node {
 public:
  Node(int node_rank, int nodes) { hear(EngineSignals::Seated{node_rank, nodes}); }

  std::string hear(const EngineSignals::Event& event) {
    std::vector<EngineSignals::Effect> effects;
    machine_.step(now_, event, effects);
    std::vector<std::string> texts;
    for (const auto& effect : effects)
      texts.push_back(std::visit([](const auto& one) { return effect_text(one); }, effect));
    return fmt::format("{}", fmt::join(texts, ", "));
  }
  void pass(Duration duration) { now_ += duration; }
  // Lets time pass until the next deadline. REQUIRES: there is one.
  std::string tick() {
    now_ = machine_.next_deadline();
    return hear(EngineSignals::Tick{});
  }
  Duration until_deadline() const { return machine_.next_deadline() - now_; }
  bool is_at_rest() const { return machine_.next_deadline() == kNever; }

 private:
  EngineSignals machine_;
  Instant now_{seconds(100)};
};

constexpr EngineSignals::FrontGot kStop{SIGTERM, true};
constexpr EngineSignals::FrontGot kWarning{SIGUSR1, false};

TEST(EngineSignals, AStopThatTheWitnessGotTooIsNotPassedOn) {
  Node node(1, 2);
  EXPECT_EQ(node.hear(kStop), "");
  EXPECT_EQ(node.hear(EngineSignals::WitnessGot{SIGTERM}), "stop 15 told");
  EXPECT_TRUE(node.is_at_rest());
  Node other(1, 2);
  EXPECT_EQ(other.hear(EngineSignals::WitnessGot{SIGTERM}), "");
  EXPECT_EQ(other.hear(kStop), "stop 15 told");
}

TEST(EngineSignals, AStopThatTheWitnessHasNotSeenYetIsNotPassedOn) {
  EngineSignals machine([](int signal) { return signal == SIGTERM; });
  std::vector<EngineSignals::Effect> effects;
  machine.step(Instant(seconds(100)), kStop, effects);
  EXPECT_TRUE(effects.empty());
  machine.step(machine.next_deadline(), EngineSignals::Tick{}, effects);
  ASSERT_EQ(effects.size(), 1U);
  EXPECT_EQ(std::get<EngineSignals::Stop>(effects[0]), (EngineSignals::Stop{SIGTERM, true}));
}

TEST(EngineSignals, AStopThatOnlyTheFrontGotIsPassedOn) {
  Node node(0, 1);
  node.hear(EngineSignals::WitnessGot{SIGUSR1});
  node.hear(EngineSignals::WitnessGot{SIGTERM});
  node.pass(seconds{2});
  EXPECT_EQ(node.hear(kStop), "") << "one was another signal, the other came too long ago";
  EXPECT_EQ(node.until_deadline(), EngineSignals::kNextDoor);
  EXPECT_EQ(node.tick(), "stop 15 untold");
  EXPECT_TRUE(node.is_at_rest());
}

TEST(EngineSignals, AStopThatNoOtherProcessCanHaveIsPassedOnAtOnce) {
  Node node(0, 1);
  EXPECT_EQ(node.hear(EngineSignals::FrontGot{SIGINT, true, Duration{0}}), "stop 2 untold");
  EXPECT_TRUE(node.is_at_rest());
  Node late(0, 1);
  late.hear(EngineSignals::WitnessGot{SIGTERM});
  EXPECT_EQ(late.hear(EngineSignals::FrontGot{SIGTERM, true, Duration{0}}), "stop 15 told");
}

TEST(EngineSignals, OnlyTheFirstStopCounts) {
  Node node(0, 1);
  node.hear(kStop);
  EXPECT_EQ(node.hear(EngineSignals::FrontGot{SIGINT, true, Duration{0}}), "stop 2 untold");
  EXPECT_EQ(node.tick(), "");
  EXPECT_EQ(node.hear(kStop), "");
  EXPECT_TRUE(node.is_at_rest());
}

TEST(EngineSignals, Node0SendsAWarningToAllNodes) {
  Node first(0, 3);
  first.hear(kWarning);
  EXPECT_EQ(first.hear(EngineSignals::WitnessGot{SIGUSR1}), "tell -1 10 by engine, warn 10 told");
  EXPECT_EQ(first.hear(EngineSignals::Heard{SIGUSR1, true}), "") << "it is the same warning";
  EXPECT_TRUE(first.is_at_rest());
  Node alone(0, 1);
  alone.hear(kWarning);
  EXPECT_EQ(alone.tick(), "warn 10 untold");
}

// The job may end within milliseconds, and node 0 requeues it.
TEST(EngineSignals, AnotherNodeReportsANewWarningToNode0AtOnce) {
  Node node(2, 3);
  node.hear(kWarning);
  EXPECT_EQ(node.hear(EngineSignals::WitnessGot{SIGUSR1}), "tell 0 10 by engine, warn 10 told");
  EXPECT_TRUE(node.is_at_rest());
  Node late(2, 3);
  late.hear(EngineSignals::Heard{SIGUSR1, true});
  late.hear(kWarning);
  EXPECT_EQ(late.hear(EngineSignals::WitnessGot{SIGUSR1}), "warn 10 told");
  Node lonely(2, 3);
  lonely.hear(kWarning);
  EXPECT_EQ(lonely.tick(), "tell 0 10, warn 10 untold");
  EXPECT_TRUE(lonely.is_at_rest());
}

TEST(EngineSignals, Node0PassesOnAWarningThatAnotherNodeGot) {
  Node first(0, 3);
  EXPECT_EQ(first.hear(EngineSignals::Heard{SIGUSR1, false}), "tell -1 10, warn 10 untold");
}

// The engine's own signal reaches each node at its own time.
TEST(EngineSignals, AWarningThatTheEngineSendsToAllNodesIsAwaited) {
  Node node(1, 3);
  EXPECT_EQ(node.hear(EngineSignals::Heard{SIGUSR1, true}), "");
  EXPECT_EQ(node.until_deadline(), EngineSignals::kElsewhere);
  node.pass(milliseconds{900});
  EXPECT_EQ(node.hear(EngineSignals::WitnessGot{SIGUSR1}), "warn 10 told");
  EXPECT_EQ(node.hear(kWarning), "") << "the front got the same signal";
  EXPECT_TRUE(node.is_at_rest());
  Node left_out(1, 3);
  left_out.hear(EngineSignals::Heard{SIGUSR1, true});
  EXPECT_EQ(left_out.tick(), "warn 10 untold");
}

TEST(EngineSignals, TheSameSignalLaterIsAnotherWarning) {
  Node node(0, 2);
  EXPECT_EQ(node.hear(EngineSignals::TimeIsShort{SIGUSR1}), "tell -1 10, warn 10 untold");
  EXPECT_EQ(node.hear(EngineSignals::TimeIsShort{SIGUSR1}), "");
  node.pass(EngineSignals::kSame + milliseconds{1});
  EXPECT_EQ(node.hear(EngineSignals::TimeIsShort{SIGUSR1}), "tell -1 10, warn 10 untold");
}

TEST(EngineSignals, AStopAndAWarningAreKeptApart) {
  Node node(0, 2);
  node.hear(kWarning);
  node.hear(kStop);
  EXPECT_EQ(node.hear(EngineSignals::WitnessGot{SIGTERM}), "stop 15 told");
  EXPECT_EQ(node.tick(), "tell -1 10, warn 10 untold");
  EXPECT_TRUE(node.is_at_rest());
}

}  // namespace
}  // namespace muster
