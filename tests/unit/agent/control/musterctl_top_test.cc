#include "agent/control/musterctl_top.h"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace muster {
namespace {

// A rank in the last of its `called` calls of group 'world'.
RankRecords rank_in_call(int rank, int64_t called, double seconds = 1) {
  RankRecords records;
  records.rank = rank;
  records.pid = 4700 + rank;
  records.owner = records.pid;
  records.source = "worker_lib";
  records.recorded = called;
  records.groups = {
      {"world", "w", "0-3", 4, rank, GroupState::ready, called, called - 1, 60, seconds}};
  records.current = CallLine{.group = "world",
                             .ordinal = called,
                             .operation = "all_reduce",
                             .call = "all_reduce (sum) of 8 int8",
                             .count = 8,
                             .type = "int8",
                             .reduction = "sum",
                             .synchronous = true,
                             .state = CallState::pending,
                             .called_ago_s = seconds,
                             .took_s = {},
                             .site = "train.py:88 step"};
  return records;
}

// A rank whose last call, which took a second, has ended.
RankRecords rank_after_call(int rank, int64_t called, double seconds) {
  RankRecords records = rank_in_call(rank, called, seconds + 1);
  records.current->state = CallState::complete;
  records.current->took_s = 1;
  return records;
}

control::Records all_of(std::vector<RankRecords> ranks) {
  return {std::move(ranks), {}};
}

control::JobStatus train_job() {
  control::JobStatus status;
  status.job_id = "train";
  status.pid = 4242;
  status.phase = "running";
  status.world_size = 4;
  status.nodes = {{0, "node-a", 0, 4, "running"}};
  status.max_restarts = 3;
  status.uptime_s = 3725;
  return status;
}

const std::string kHeading =
    "job train (pid 4242): running; 4 ranks on 1 node, restarts: 0 of 3, up 1 h 02 min\n\n";

std::string screen_of_looks(const control::Records* before, const control::Records& now,
                            const Screen& screen = {}) {
  return top_text(train_job(), top_ranks(before, now, 2), now.unanswered, screen);
}

TEST(Top, PutsTheRankThatIsBehindFirst) {
  const auto look = all_of({rank_in_call(0, 1042, 12.4), rank_in_call(1, 1042, 12.2),
                            rank_after_call(2, 1041, 12.4), rank_in_call(3, 1042, 12.3)});
  EXPECT_EQ(screen_of_looks(&look, look),
            kHeading +
                "RANKS  CALLS/S  BEHIND       FOR     DOING\n"
                "2      0        1 ('world')  12.4 s  after all_reduce #1041 "
                "of group 'world' at train.py:88 step\n"
                "0-1,3  0        -            12.4 s  in all_reduce #1042 of "
                "group 'world' at train.py:88 step\n");
}

TEST(Top, FoldsRanksThatMakeCalls) {
  const auto before = all_of({rank_in_call(0, 100), rank_in_call(1, 101)});
  const auto now = all_of({rank_in_call(0, 201), rank_after_call(1, 207, 0)});
  EXPECT_EQ(screen_of_looks(&before, now),
            kHeading +
                "RANKS  CALLS/S  BEHIND  FOR  DOING\n"
                "0-1    50-53    -       -    calls all_reduce of group 'world'\n");
}

TEST(Top, ComparesARankWithTheOthersAtThePreviousLook) {
  const auto before = all_of({rank_in_call(0, 100), rank_in_call(1, 90)});
  const auto caught_up = all_of({rank_in_call(0, 150), rank_in_call(1, 120)});
  EXPECT_EQ(top_ranks(&before, caught_up, 2)[1].behind, 0);
  const auto not_yet = all_of({rank_in_call(0, 150), rank_in_call(1, 97)});
  const TopRank late = top_ranks(&before, not_yet, 2)[1];
  EXPECT_EQ(late.behind, 3);
  EXPECT_EQ(late.behind_in, "world");
  EXPECT_EQ(late.calls_per_s, 3.5);
}

TEST(Top, DoesNotCompareDifferentProcessesOfARank) {
  const auto before = all_of({rank_in_call(0, 100), rank_in_call(1, 100)});
  auto now = all_of({rank_in_call(0, 3), rank_in_call(1, 3)});
  for (RankRecords& rank : now.ranks)
    rank.pid += 100;
  for (const TopRank& rank : top_ranks(&before, now, 2)) {
    EXPECT_EQ(rank.behind, 0);
    EXPECT_EQ(rank.calls_per_s, std::nullopt);
  }
}

TEST(Top, ShowsNoRatesAtTheFirstLook) {
  EXPECT_EQ(screen_of_looks(nullptr, all_of({rank_in_call(0, 7, 0.5)})),
            kHeading +
                "RANKS  CALLS/S  BEHIND  FOR     DOING\n"
                "0      -        -       500 ms  in all_reduce #7 of group 'world' at train.py:88 "
                "step\n");
}

TEST(Top, DescribesWhatElseARankDoes) {
  RankRecords forms = rank_after_call(0, 5, 1);
  forms.groups.push_back({"tp", "t", "", 2, 0, GroupState::forming, 0, 0, 3, 3});
  RankRecords fresh = rank_in_call(1, 1);
  fresh.current.reset();
  fresh.attached_ago_s = 4;
  RankRecords in_flight = rank_in_call(2, 5);
  in_flight.current->synchronous = false;
  in_flight.sections = {{"epoch", 9}, {"evaluation", 2}};
  RankRecords unclear = rank_in_call(3, 5);
  unclear.current->state = CallState::unknown;
  RankRecords failed = rank_in_call(4, 5);
  failed.failure = "rank 2 is gone";
  failed.current->state = CallState::failed;
  RankRecords silent;
  silent.rank = 5;
  silent.summary = "no recorder attached";
  std::vector<std::string> doing;
  for (const TopRank& rank :
       top_ranks(nullptr, all_of({forms, fresh, in_flight, unclear, failed, silent}), 0))
    doing.push_back(rank.doing);
  const std::string call = "all_reduce #5 of group 'world' at train.py:88 step";
  EXPECT_EQ(doing,
            (std::vector<std::string>{
                "waits for the members of group 'tp', 2 in all", "has called nothing yet",
                "in flight: " + call + "; in section 'evaluation'", "in, or after, " + call,
                "after " + call + " (failed); failed: rank 2 is gone", "no recorder attached"}));
}

TEST(Top, FitsTheScreen) {
  std::vector<RankRecords> ranks;
  for (int rank = 0; rank < 20; ++rank)
    ranks.push_back(rank_in_call(rank, 100 + rank));
  const auto look = all_of(ranks);
  const std::string text = screen_of_looks(nullptr, look, {.rows = 10, .columns = 40});
  EXPECT_EQ(std::ranges::count(text, '\n'), 9);
  EXPECT_NE(text.find("\n15 more ranks in 15 rows\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n0      -        -       1.0 s  in all_re\n"), std::string::npos) << text;
}

TEST(Top, NamesSilentNodesAndSanitizesText) {
  auto look = all_of({rank_in_call(0, 1)});
  look.unanswered = {"node-b (ranks 4-7): no answer\x1b[2J within 2 s"};
  look.ranks[0].current->group = "w\x1b[31m\n";
  const std::string text = screen_of_looks(nullptr, look);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_TRUE(text.ends_with("\nnode-b (ranks 4-7): no answer within 2 s\n")) << text;
}

TEST(Top, IsAJsonObjectForPrograms) {
  const auto before = all_of({rank_in_call(0, 100), rank_in_call(1, 99, 3)});
  auto now = all_of({rank_in_call(0, 110), rank_in_call(1, 99, 5)});
  now.unanswered = {"one"};
  EXPECT_EQ(
      nlohmann::json::parse(top_json(train_job(), top_ranks(&before, now, 2), now.unanswered)),
      nlohmann::json::parse(R"json({"version": 1, "ok": true, "job": "train", "phase": "running",
      "ranks": [
        {"rank": 0, "pid": 4700, "behind": 0, "calls_per_s": 5.0, "doing": "calls all_reduce of group 'world'"},
        {"rank": 1, "pid": 4701, "behind": 1, "behind_in": "world", "calls_per_s": 0.0, "for_s": 5.0,
         "doing": "in all_reduce #99 of group 'world' at train.py:88 step"}],
      "unanswered": ["one"]})json"));
}

}  // namespace
}  // namespace muster
