// The detector's promises: no verdict on a healthy job, the right ranks and class of a fault, in
// time, and no wrong verdict whatever happens to the digests on their way.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/sanitized.h"
#include "tests/unit/agent/hang/detector_harness.h"
#include "tests/unit/agent/hang/detector_world.h"

namespace muster::hang {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kRuns = kSanitized ? 3 : 30;
constexpr Duration kSlack = seconds(3);

// The parameter is the number of nodes.
class DetectorProperty : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Nodes, DetectorProperty, testing::Values(1, 3));

WorldOptions options_of(uint64_t seed, Fault fault) {
  WorldOptions options;
  options.nodes = DetectorProperty::GetParam();
  options.seed = seed;
  options.fault = fault;
  options.limits.busy_timeout = seconds(45);
  options.channel.delay = milliseconds(100);
  return options;
}

Class class_of(Fault fault) {
  switch (fault) {
    case Fault::block:
      return Class::never_entered;
    case Fault::stop:
      return Class::stopped;
    case Fault::leave:
      return Class::exited;
    case Fault::signature:
      return Class::signature;
    case Fault::crossed:
      return Class::circle;
    default:
      return Class::busy;
  }
}

Duration limit_of(const Finding& finding, const Limits& limits) {
  if (finding.by == By::proof) return Duration{};
  return finding.what == Class::busy ? limits.busy_timeout : limits.hang_timeout;
}

bool names(const Finding& finding, int rank) {
  return std::ranges::count(finding.ranks, rank, &Suspect::rank) > 0;
}

// True if the verdict is right for the fault. If looks at the process are lost (not `is_seen`), the
// detector may know only that the rank is late.
bool is_right(const Finding& verdict, Fault fault, int culprit, bool is_seen = true) {
  if (!is_seen && verdict.what == Class::incomplete && verdict.ranks.empty()) return true;
  if (!names(verdict, culprit)) return false;
  if (fault == Fault::no_send) return true;
  const bool is_only_late =
      !is_seen && (verdict.what == Class::busy || verdict.what == Class::incomplete);
  if (verdict.what != class_of(fault) && !is_only_late) return false;
  // A verdict may name more ranks if too little is known to exclude them.
  return verdict.ranks.size() == 1 || fault == Fault::crossed || verdict.is_tie ||
         verdict.what == Class::incomplete || verdict.confidence == Confidence::low;
}

constexpr Fault kFaults[] = {Fault::block, Fault::loop,      Fault::sleep,   Fault::stop,
                             Fault::leave, Fault::signature, Fault::crossed, Fault::no_send};

TEST_P(DetectorProperty, AHealthyJobGetsNoVerdict) {
  for (uint64_t seed = 0; seed < 2 * kRuns; ++seed) {
    World world(options_of(seed, Fault::none));
    world.run(seconds(60));
    ASSERT_TRUE(world.all_ended()) << world.story();
    ASSERT_TRUE(world.verdicts().empty()) << world.story();
  }
}

TEST_P(DetectorProperty, EveryNoticeOfAHealthyJobIsFollowedByItsEnd) {
  size_t notices = 0;
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    World world(options_of(seed, Fault::none));
    world.run(seconds(60));
    for (const World::Said& said : world.said()) {
      const auto* const notice = std::get_if<Notice>(&said.effect);
      if (notice == nullptr) continue;
      ++notices;
      const auto ends_it = [&](const World::Said& other) {
        const auto* const ended = std::get_if<WaitEnded>(&other.effect);
        return ended != nullptr && ended->number == notice->finding.number && ended->have_come;
      };
      ASSERT_EQ(std::ranges::count_if(world.said(), ends_it), 1) << world.story();
    }
  }
  EXPECT_GT(notices, kRuns);
}

TEST_P(DetectorProperty, AFaultIsNamedInTime) {
  for (const Fault fault : kFaults) {
    size_t found = 0;
    for (uint64_t seed = 0; seed < kRuns; ++seed) {
      const WorldOptions options = options_of(seed, fault);
      World world(options);
      world.run(seconds(60));
      if (!world.faulty() || !world.somebody_waits()) {
        ASSERT_TRUE(world.verdicts().empty()) << world.story();
        continue;
      }
      ++found;
      const std::vector<Finding> verdicts = world.verdicts();
      ASSERT_EQ(verdicts.size(), 1U) << world.story();
      ASSERT_TRUE(is_right(verdicts.front(), fault, *world.faulty())) << world.story();
      for (const World::Said& said : world.said()) {
        if (!std::holds_alternative<Verdict>(said.effect)) continue;
        ASSERT_LE(said.at - world.settled(), limit_of(verdicts.front(), options.limits) + kSlack)
            << world.story();
      }
    }
    EXPECT_GT(found, kRuns / 4) << "fault " << static_cast<int>(fault);
  }
}

TEST_P(DetectorProperty, AFailureGetsNoVerdict) {
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    World world(options_of(seed, Fault::fail));
    world.run(seconds(60));
    ASSERT_TRUE(world.verdicts().empty()) << world.story();
  }
}

TEST_P(DetectorProperty, LateAndLostDigestsNeverMakeAWrongVerdict) {
  std::vector<Fault> faults(std::begin(kFaults), std::end(kFaults));
  faults.push_back(Fault::none);
  for (const Fault fault : faults) {
    size_t found = 0;
    for (uint64_t seed = 0; seed < kRuns; ++seed) {
      WorldOptions options = options_of(seed, fault);
      options.channel = {.delay = seconds(5), .lost = 60, .repeated = 20};
      World world(options);
      world.run(seconds(90));
      for (const Finding& verdict : world.verdicts()) {
        ASSERT_TRUE(world.faulty()) << world.story();
        ASSERT_TRUE(is_right(verdict, fault, *world.faulty(), false)) << world.story();
        ++found;
      }
    }
    EXPECT_GE(found, fault == Fault::none ? 0 : kRuns / 8) << "fault " << static_cast<int>(fault);
  }
}

// The limit for busy ranks is out of reach: a report that a late rank has meanwhile waited for
// others may be lost.
TEST_P(DetectorProperty, AHealthyJobGetsNoVerdictThoughMostDigestsAreLost) {
  for (const Channel& channel : {Channel{.delay = milliseconds(100), .lost = 95},
                                 Channel{.delay = seconds(15), .lost = 90, .repeated = 20}}) {
    for (uint64_t seed = 0; seed < 4 * kRuns; ++seed) {
      WorldOptions options = options_of(seed, Fault::none);
      options.channel = channel;
      options.limits.busy_timeout = seconds(300);
      World world(options);
      world.run(seconds(60));
      ASSERT_TRUE(world.verdicts().empty()) << world.story();
      ASSERT_EQ(world.untrue(), std::vector<std::string>()) << world.story();
    }
  }
}

TEST_P(DetectorProperty, GarbageOfOneRankAccusesNoOther) {
  for (uint64_t seed = 0; seed < 2 * kRuns; ++seed) {
    WorldOptions options = options_of(seed, Fault::none);
    options.channel.garbage = static_cast<int>(seed % 2);
    World world(options);
    world.run(seconds(60));
    for (const Finding& verdict : world.verdicts())
      ASSERT_TRUE(verdict.ranks.empty() || names(verdict, options.channel.garbage))
          << world.story();
  }
}

TEST_P(DetectorProperty, TheSameEventsGiveTheSameEffects) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const WorldOptions options = options_of(seed, kFaults[seed % std::size(kFaults)]);
    World one(options);
    World other(options);
    one.run(seconds(60));
    other.run(seconds(60));
    ASSERT_EQ(one.story(), other.story());
  }
}

}  // namespace
}  // namespace muster::hang
