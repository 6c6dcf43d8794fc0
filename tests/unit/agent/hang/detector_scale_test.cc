// A job of 1,000 nodes with eight ranks each, one of which never makes its third call: it is named
// in time, and no node sends much for that.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sanitized.h"
#include "tests/unit/agent/hang/detector_harness.h"
#include "tests/unit/agent/hang/node_net.h"

namespace muster::hang {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kNodes = kSanitized ? 100 : 1000;
constexpr int kRanksOfNode = 8;
constexpr int kRanks = kNodes * kRanksOfNode;
constexpr int kLate = kRanks / 2 + 21;
constexpr Duration kScaleStep = milliseconds(50);

class LargeJob {
 public:
  explicit LargeJob(const Channel& channel)
      : detector_(Limits{}),
        net_(std::vector<int>(kNodes, kRanksOfNode), channel, 7,
             [this](const Event& event) { tell(event); }) {
    tell(Begun{kRanks});
    for (int rank = 0; rank < kRanks; ++rank) {
      RankDigest digest;
      digest.rank = rank;
      digest.generation = 1;
      // One rank of each node lists the members: enough, and cheaper to simulate.
      const std::vector<int> listed =
          rank % kRanksOfNode == 0 ? all_of(kRanks) : std::vector<int>();
      digest.groups.push_back({.id = "world",
                               .name = "world",
                               .ranks = listed,
                               .size = kRanks,
                               .own_rank = rank,
                               .phase = GroupPhase::ready,
                               .since = now_ + net_.ahead(rank),
                               .calls = {},
                               .hashes = {}});
      rings_.emplace_back(Digested{std::move(digest)});
    }
  }

  void call(bool completes) {
    for (int rank = 0; rank < kRanks; ++rank) {
      if (!completes && rank == kLate) continue;
      GroupDigest& world = ring(rank).groups[0];
      const Instant called = now_ + net_.ahead(rank) + std::chrono::microseconds(rank % 977);
      world.calls.push_back({++world.called, sum_of(262'144), called, "train.py:88 step"});
      if (completes) world.completed = world.called;
    }
  }
  void pass(Duration duration) {
    for (const Instant end = now_ + duration; now_ < end; now_ += kScaleStep) {
      if (now_ >= next_look_) look();
      net_.deliver(now_);
      tell(Tick{});
    }
  }

  std::vector<size_t> bytes_sent() const {
    std::vector<size_t> bytes;
    for (int node = 0; node < kNodes; ++node)
      bytes.push_back(net_.bytes_sent(node));
    return bytes;
  }
  Instant now() const { return now_; }

  std::vector<Finding> verdicts;
  std::optional<Instant> first_look;  // First look at the late rank's process.

 private:
  RankDigest& ring(int rank) {
    return std::get<Digested>(rings_[static_cast<size_t>(rank)]).digest;
  }
  void look() {
    next_look_ = now_ + NodeReporter::kLookEvery;
    for (int rank = 0; rank < kRanks; ++rank) {
      ring(rank).at = now_ + net_.ahead(rank);
      net_.see(now_, rank, rings_[static_cast<size_t>(rank)]);
    }
    look_at_processes();
    net_.looked(now_);
  }
  // First when a rank is wanted, then once a second.
  void look_at_processes() {
    std::map<int, Instant> before = std::exchange(looked_, {});
    for (const int rank : net_.wanted(now_)) {
      const auto last = before.find(rank);
      looked_[rank] = last == before.end() ? now_ : last->second;
      if (rank == kLate && !first_look) first_look = now_;
      if (now_ - looked_[rank] < seconds(1)) continue;
      looked_[rank] = now_;
      const Life life{
          .state = LifeState::blocked,
          .call = SystemCall{.is_known = true, .name = rank == kLate ? "read" : "futex"}};
      net_.see(now_, rank, LifeSeen{rank, life, now_ + net_.ahead(rank)});
    }
  }
  void tell(const Event& event) {
    std::vector<Effect> out;
    detector_.step(now_, event, out);
    for (const Effect& effect : out) {
      if (const auto* const list = std::get_if<LookAt>(&effect)) net_.look_at(now_, list->ranks);
      if (const auto* const verdict = std::get_if<Verdict>(&effect))
        verdicts.push_back(verdict->finding);
    }
  }

  Instant now_{seconds(10'000)};
  Detector detector_;
  NodeNet net_;
  std::vector<Event> rings_;       // A Digested, by rank.
  std::map<int, Instant> looked_;  // Last look at the process, by rank.
  Instant next_look_{};
};

void expect_named_in_time(const Channel& channel) {
  LargeJob job(channel);
  job.pass(seconds(1));
  job.call(true);
  job.call(true);
  job.pass(seconds(1));
  ASSERT_TRUE(job.verdicts.empty());
  const std::vector<size_t> before = job.bytes_sent();
  const Instant begin = job.now();
  job.call(false);
  while (job.verdicts.empty() && job.now() - begin < seconds(30))
    job.pass(kScaleStep);
  ASSERT_EQ(job.verdicts.size(), 1U);
  const Finding& verdict = job.verdicts.front();
  // The verdict needs both: the others' wait, and a process seen blocked for the timeout.
  ASSERT_TRUE(job.first_look);
  EXPECT_LE(*job.first_look - begin, seconds(2));
  EXPECT_LE(job.now() - *job.first_look, Limits{}.hang_timeout + seconds(2));
  EXPECT_EQ(named(verdict), std::vector{kLate});
  EXPECT_EQ(verdict.what, Class::never_entered);
  EXPECT_EQ(verdict.waiting.size(), size_t{kRanks - 1});
  const std::vector<size_t> after = job.bytes_sent();
  size_t most = 0;
  for (size_t node = 0; node < after.size(); ++node)
    most = std::max(most, after[node] - before[node]);
  EXPECT_LT(most, 64U * 1024);
  testing::Test::RecordProperty("most_bytes", static_cast<int>(most));
  testing::Test::RecordProperty("first_look",
                                static_cast<int>((*job.first_look - begin) / milliseconds(1)));
  testing::Test::RecordProperty("milliseconds",
                                static_cast<int>((job.now() - begin) / milliseconds(1)));
}

TEST(DetectorScale, OneLateRankOf8000IsNamedInTime) {
  expect_named_in_time({.delay = milliseconds(20)});
}

TEST(DetectorScale, LateAndLostMessagesOf1000NodesHideNoLateRank) {
  expect_named_in_time({.delay = milliseconds(500), .lost = 10});
}

}  // namespace
}  // namespace muster::hang
