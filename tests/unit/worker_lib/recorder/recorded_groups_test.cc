// Which groups a rank's ring shows: when they form, are ready, fail and are closed, and that an id
// is the same on all members and never that of another group.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker_lib/group/fake_backend.h"
#include "tests/unit/worker_lib/recorder/recorded_ranks.h"

namespace muster::worker::recorder_test {
namespace {

using group_test::FakeJob;
using group_test::FakeRank;
using group_test::thrown_by;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

TEST(RecordedGroups, AGroupIsShownOnlyByItsMembers) {
  RecordedRanks recorded(3);
  FakeJob job(3, recorded.adjust());
  job.each([&](FakeRank& rank) {
    ProcessGroup ends = rank.new_group({{2}, {0}}, {.name = "ends"});
    if (rank.me != 1) ends.barrier();
    if (rank.me != 0) return;
    EXPECT_THAT(group_texts(recorded[0]), ElementsAre("world (world) of ranks 0-2, 0 of 3: ready",
                                                      "2,0.1 (ends) of ranks 2,0, 1 of 2: ready"));
  });
  EXPECT_THAT(group_texts(recorded[1]), ElementsAre("world (world) of ranks 0-2, 1 of 3: ready"));
  EXPECT_EQ(group_in(recorded[2], "2,0.1").text, "2,0.1 (ends) of ranks 2,0, 0 of 2: closed");
  EXPECT_EQ(group_in(recorded[0], "2,0.1").hash, group_in(recorded[2], "2,0.1").hash);
}

TEST(RecordedGroups, GroupsOfEqualRanksHaveDifferentIds) {
  RecordedRanks recorded(2);
  FakeJob job(2, recorded.adjust());
  job.each([](FakeRank& rank) {
    rank.new_group({{0}, {1}}, {.name = "pair"}).barrier();
    rank.new_group({{0}, {1}}, {.name = "pair"}).barrier();
    rank.world().split(0, 0, {.name = "all"}).barrier();
  });
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(group_texts(recorded[rank]),
                ElementsAre(HasSubstr("world (world)"), HasSubstr("0-1.1 (pair)"),
                            HasSubstr("0-1.2 (pair)"), HasSubstr("0-1.3 (all)")));
  }
  EXPECT_THAT(call_texts(recorded[0], "world"), ElementsAre("1 all_gather of 2 int64"))
      << "by which the ranks exchange their colors";
}

TEST(RecordedGroups, AGroupIsFormingUntilItsMembersArrive) {
  RecordedRanks recorded(2);
  FakeJob job(2, recorded.adjust());
  std::thread first([&] { job[0].new_group({{0}, {1}}, {.name = "pair"}); });
  while (groups_of(recorded[0]).size() < 2)
    std::this_thread::yield();
  EXPECT_EQ(group_in(recorded[0], "0-1.1").text, "0-1.1 (pair) of ranks 0-1, 0 of 2: forming");
  job[1].new_group({{0}, {1}}, {.name = "pair"});
  first.join();
  EXPECT_EQ(group_in(recorded[0], "0-1.1").text, "0-1.1 (pair) of ranks 0-1, 0 of 2: closed");
}

TEST(RecordedGroups, TheReasonWhyAGroupWasNotMadeIsKept) {
  RecordedRanks recorded(2);
  FakeJob job(2, recorded.adjust());
  const GroupOptions soon{.name = "pair", .timeout = std::chrono::milliseconds(1)};
  EXPECT_NE(thrown_by([&] { job[0].new_group({{0}, {1}}, soon); }), "nothing");
  EXPECT_THAT(failure_text(recorded[0]), HasSubstr("new_group of group pair: "));
  EXPECT_EQ(static_cast<int32_t>(recorded[0].notes.failed_group),
            group_in(recorded[0], "0-1.1").handle);
}

TEST(RecordedGroups, ADeathFailsAllLanesOfTheGroup) {
  RecordedRanks recorded(2);
  FakeJob job(2, recorded.adjust());
  job.each([](FakeRank& rank) { rank.world().monitored_barrier(); });
  job.watch().died(1);
  job.watch().settle();
  EXPECT_THAT(group_texts(recorded[0]),
              ElementsAre("world (world) of ranks 0-1, 0 of 2: failed",
                          "world/monitored (world) of ranks 0-1, 0 of 2: failed"));
  EXPECT_EQ(failure_text(recorded[0]), "") << "the program has not seen it";
  job[0].host->close_groups();
  EXPECT_EQ(group_in(recorded[0], "world").text, "world (world) of ranks 0-1, 0 of 2: closed");
}

TEST(RecordedGroups, EntriesOfClosedGroupsAreReused) {
  RecordedRanks recorded(1);
  FakeJob job(1, recorded.adjust());
  for (size_t i = 0; i < 2 * ring::kGroups; ++i)
    job[0].new_group({{0}}).barrier();
  EXPECT_EQ(recorded[0].head.without_group, 0u);
  EXPECT_EQ(group_in(recorded[0], "0.256").completed, 1u);
}

TEST(RecordedGroups, TheWorldIsFormingBeforeTheRanksMeet) {
  RecordedRanks recorded(2);
  recorded.recorder(0).begin_world(2, 0);
  EXPECT_THAT(group_texts(recorded[0]), ElementsAre("world (world) of ranks 0-1, 0 of 2: forming"));
  recorded.recorder(1).begin_world(2, 1);
  FakeJob job(2, recorded.adjust());
  EXPECT_THAT(group_texts(recorded[0]), ElementsAre("world (world) of ranks 0-1, 0 of 2: ready"));
}

TEST(RecordedGroups, AWorldWithoutItsOtherRanksHasFailed) {
  RecordedRanks recorded(1);
  recorded.recorder(0).begin_world(2, 0);
  recorded.recorder(0).end_world("rank 1 did not join");
  EXPECT_THAT(group_texts(recorded[0]), ElementsAre("world (world) of ranks 0-1, 0 of 2: failed"));
  EXPECT_EQ(failure_text(recorded[0]), "rank 1 did not join");
}

TEST(RecordedGroups, ASecondInitialisationHasIdsOfItsOwn) {
  RecordedRanks recorded(2);
  for (const char* world : {"world", "world@2"}) {
    for (const int rank : {0, 1})
      recorded.recorder(static_cast<size_t>(rank)).begin_world(2, rank);
    FakeJob job(2, recorded.adjust());
    job.each([](FakeRank& rank) {
      rank.world().monitored_barrier();
      rank.new_group({{0}, {1}}).barrier();
      rank.host->close_groups();
    });
    EXPECT_EQ(group_in(recorded[1], world).text,
              std::string(world) + " (world) of ranks 0-1, 1 of 2: closed");
  }
  std::vector<std::string> ids;
  for (const auto& [id, group] : groups_of(recorded[0]))
    ids.push_back(id);
  EXPECT_THAT(ids, UnorderedElementsAre("world", "world/monitored", "0-1.1", "world@2",
                                        "world@2/monitored", "0-1.1@2"));
}

TEST(RecordedGroups, SectionsNest) {
  RecordedRanks recorded(1);
  Recorder& recorder = recorded.recorder(0);
  recorder.enter_section("epoch 3");
  recorder.enter_section("checkpoint");
  EXPECT_THAT(section_texts(recorded[0]), ElementsAre("epoch 3", "checkpoint"));
  recorder.leave_section();
  EXPECT_THAT(section_texts(recorded[0]), ElementsAre("epoch 3"));
  recorder.leave_section();
  recorder.leave_section();  // Leaves a section that was not entered.
  EXPECT_THAT(section_texts(recorded[0]), IsEmpty());
}

}  // namespace
}  // namespace muster::worker::recorder_test
