// Tests of the writer's groups, messages, sections and failures.
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/rendezvous/ring/ring_harness.h"

namespace muster::ring {
namespace {

GroupState state_of(const Group& group) {
  return static_cast<GroupState>(group.state & 0xff);
}

class RecordedNotes : public testing::Test {
 protected:
  RecordedNotes() : writer_(ring_.attach()) {}

  int32_t open(const std::string& id = "a") { return writer_->open_group({.id = id, .size = 4}); }
  Group& group(int32_t handle) { return ring_->groups[static_cast<size_t>(handle) % kGroups]; }
  Pending send(int32_t group, int peer, int tag = 0) {
    return writer_->message_called(group, {.kind = CallKind::send, .root = peer}, tag, nullptr);
  }
  Pending recv(int32_t group, int peer) {
    return writer_->message_called(group, {.kind = CallKind::recv, .root = peer}, 0, nullptr);
  }
  PeerCount& count(const Pending& pending) {
    return ring_->peers[static_cast<size_t>(pending.peer_count)];
  }

  TestRing ring_;
  std::unique_ptr<RingWriter> writer_;
};

// ---- groups

TEST_F(RecordedNotes, OpeningAGroupRecordsItsFacts) {
  const int32_t handle = writer_->open_group({.id = "dp/0",
                                              .name = "data parallel",
                                              .ranks = "0-3,7",
                                              .size = 5,
                                              .own_rank = 4,
                                              .completion_is_late = true});
  ASSERT_EQ(handle, 1 << 7);
  const Group& group = ring_->groups[0];
  EXPECT_EQ(group.state, 1U << 8 | static_cast<uint64_t>(GroupState::forming));
  EXPECT_EQ(text_in(group.id, kWordsOfText), "dp/0");
  EXPECT_EQ(text_in(group.name, kWordsOfText), "data parallel");
  EXPECT_EQ(text_in(group.ranks, kWordsOfText), "0-3,7");
  EXPECT_EQ(group.size, 5U);
  EXPECT_EQ(group.own_rank, 4U);
  EXPECT_EQ(group.flags, kCompletionIsLate);
  const uint64_t formed = group.state_ticks;
  EXPECT_EQ(group.called_ticks, formed);
  writer_->set_state(handle, GroupState::ready);
  EXPECT_EQ(group.state, 1U << 8 | static_cast<uint64_t>(GroupState::ready));
  EXPECT_GE(group.state_ticks, formed);
}

TEST_F(RecordedNotes, LongTextsAreCutBetweenCharacters) {
  const std::string long_name = std::string(126, 'n') + "\xC3\xA9";
  const std::string long_ranks = "0," + std::string(126, '1');
  writer_->open_group({.id = std::string(127, 'i'), .name = long_name, .ranks = long_ranks});
  const Group& group = ring_->groups[0];
  EXPECT_EQ(text_in(group.id, kWordsOfText), std::string(127, 'i'));
  EXPECT_EQ(text_in(group.name, kWordsOfText), std::string(126, 'n'));
  EXPECT_EQ(text_in(group.ranks, kWordsOfText), "") << "half of the members would be wrong";
}

TEST_F(RecordedNotes, AGroupHasNoHandleIfAllEntriesAreTaken) {
  std::set<int32_t> handles;
  for (size_t i = 0; i < kGroups; ++i)
    handles.insert(open());
  EXPECT_EQ(handles.size(), kGroups);
  EXPECT_EQ(*handles.begin(), 1 << 7);
  EXPECT_EQ(open(), -1);
  EXPECT_EQ(open(), -1);
  EXPECT_EQ(ring_->head.without_group, 2U);
}

TEST_F(RecordedNotes, TheEntryOfTheGroupClosedFirstIsReused) {
  std::vector<int32_t> handles;
  for (size_t i = 0; i < kGroups; ++i)
    handles.push_back(open());
  writer_->called(handles[9], 16, {.kind = CallKind::barrier}, nullptr);
  writer_->completed(writer_->called(handles[9], 17, {.kind = CallKind::barrier}, nullptr));
  for (const size_t i : {9U, 5U, 70U})
    writer_->set_state(handles[i], GroupState::closed);
  writer_->set_state(handles[4], GroupState::failed);
  EXPECT_EQ(group(handles[9]).called, 17U) << "it is readable until its entry is reused";

  const int32_t reused = open("b");
  EXPECT_EQ(reused, 2 << 7 | 9);
  const Group& entry = group(reused);
  EXPECT_EQ(text_in(entry.id, kWordsOfText), "b");
  EXPECT_EQ(state_of(entry), GroupState::forming);
  EXPECT_EQ(entry.called + entry.completed + entry.running_hash + entry.hash_ordinal[1], 0U);
  EXPECT_EQ(open(), 2 << 7 | 5);
  EXPECT_EQ(open(), 2 << 7 | 70);
  EXPECT_EQ(open(), -1) << "a failed group is not closed";
}

TEST_F(RecordedNotes, KnowledgeOfCompletionsMayChange) {
  const int32_t handle = writer_->open_group({.id = "a", .size = 4, .completion_is_late = true});
  EXPECT_EQ(ring_->head.looked_ticks, 0U);
  writer_->set_completion_unknown(handle, true);
  EXPECT_EQ(group(handle).flags, kCompletionIsLate | kCompletionIsUnknown);
  writer_->set_completion_unknown(handle, false);
  EXPECT_EQ(group(handle).flags, kCompletionIsLate);
  writer_->looked(writer_->now());
  EXPECT_GE(ring_->head.looked_ticks, ring_->head.attached_ticks);
}

TEST_F(RecordedNotes, CallSitesWithTheSameTextShareAnEntry) {
  const void* const site = writer_->name_site("train.py:88 step");
  EXPECT_EQ(writer_->name_site(std::string("train.py:88 step")), site);
  const void* const other = writer_->name_site("train.py:89 step");
  EXPECT_NE(other, site);
  writer_->called(open(), 1, {.kind = CallKind::barrier}, site);
  const Site& entry = ring_->sites[ring_->records[0].what >> 48];
  EXPECT_EQ(text_in(entry.text, std::size(entry.text)), "train.py:88 step");
}

TEST_F(RecordedNotes, ACallSiteHasNoTextIfTheTableIsFull) {
  size_t named = 0;
  for (size_t i = 0; i < 4 * kSites; ++i)
    if (writer_->name_site("train.py:" + std::to_string(i)) != nullptr) ++named;
  EXPECT_GT(named, kSites / 2);
  EXPECT_LE(named, kSites);
}

TEST_F(RecordedNotes, AFormerHandleHasNoEffect) {
  for (size_t i = 1; i < kGroups; ++i)
    open();
  const int32_t former = open();
  const Pending pending = writer_->called(former, 3, {.kind = CallKind::barrier}, nullptr);
  writer_->set_state(former, GroupState::closed);
  const int32_t present = open();
  ASSERT_EQ(present % 128, former % 128);
  writer_->completed(pending);
  writer_->withdrawn(pending);
  writer_->set_state(former, GroupState::failed);
  EXPECT_EQ(writer_->called(former, 4, {.kind = CallKind::barrier}, nullptr).group, -1);
  EXPECT_EQ(group(present).called, 0U);
  EXPECT_EQ(group(present).completed, 0U);
  EXPECT_EQ(state_of(group(present)), GroupState::forming);
}

TEST_F(RecordedNotes, GenerationsWrapAroundTo1) {
  for (size_t i = 1; i < kGroups; ++i)
    open();
  int32_t handle = open();
  for (int generation = 1; generation <= 511; ++generation) {
    EXPECT_EQ(handle, generation << 7 | 127);
    writer_->set_state(handle, GroupState::closed);
    handle = open();
  }
  EXPECT_EQ(handle, 1 << 7 | 127);
}

TEST_F(RecordedNotes, ConcurrentlyOpenedGroupsHaveDifferentHandles) {
  constexpr int kThreads = 4;
  std::vector<std::vector<int32_t>> handles(kThreads);
  {
    std::vector<std::jthread> threads;
    for (auto& own : handles) {
      threads.emplace_back([&own, this] {
        for (int i = 0; i < 200; ++i) {
          own.push_back(open());
          if (i % 2 == 0) continue;
          // Close every second group, so that entries are reused meanwhile.
          writer_->set_state(own.back(), GroupState::closed);
        }
      });
    }
  }
  std::set<int32_t> all;
  size_t refused = 0;
  for (const auto& own : handles) {
    for (const int32_t handle : own) {
      if (handle < 0)
        ++refused;
      else
        EXPECT_TRUE(all.insert(handle).second) << handle;
    }
  }
  EXPECT_EQ(all.size() + refused, kThreads * 200U);
  EXPECT_EQ(ring_->head.without_group, refused);
}

// ---- messages

TEST_F(RecordedNotes, MessagesAreCountedByPeerAndDirection) {
  const int32_t group = open();
  const Pending first = send(group, 3, -7);
  EXPECT_EQ(first.ordinal, 1U);
  EXPECT_EQ(recv(group, 3).ordinal, 1U);
  EXPECT_EQ(send(group, 2).ordinal, 1U);
  EXPECT_EQ(recv(group, -1).ordinal, 1U);
  EXPECT_EQ(recv(open("b"), 3).ordinal, 1U);
  const Pending second = send(group, 3);
  EXPECT_EQ(second.ordinal, 2U);
  EXPECT_EQ(count(second).called, 2U);
  EXPECT_EQ(count(second).called_ticks, second.called_ticks);
  EXPECT_EQ(count(second).key,
            uint64_t{1} << 63 | static_cast<uint64_t>(group) << 32 | uint64_t{3 + 1});

  const SeenRecord seen = read_record(ring_->records[0]).value();
  EXPECT_EQ(seen.call, (Call{.kind = CallKind::send, .root = 3}));
  EXPECT_EQ(seen.tag, -7);
  EXPECT_EQ(seen.ordinal, 1U);
  EXPECT_EQ(ring_->groups[0].called, 0U) << "collectives have their own order";
}

TEST_F(RecordedNotes, MessagesCompleteInAnyOrder) {
  const int32_t group = open();
  const Pending first = recv(group, 1);
  const Pending second = recv(group, 1);
  writer_->completed(second);
  EXPECT_EQ(count(first).completed, 1U);
  EXPECT_EQ(read_record(ring_->records[0])->completed, 0U);
  EXPECT_NE(read_record(ring_->records[1])->completed, 0U);
  writer_->failed(first);
  EXPECT_EQ(count(first).completed, 2U);
  EXPECT_EQ(read_record(ring_->records[0])->flags, kFailed);
  EXPECT_EQ(ring_->groups[0].completed, 0U);
}

TEST_F(RecordedNotes, AWithdrawnMessageIsNotCounted) {
  const int32_t group = open();
  send(group, 1);
  const Pending refused = send(group, 1);
  writer_->withdrawn(refused);
  EXPECT_EQ(count(refused).called, 1U);
  EXPECT_EQ(read_record(ring_->records[1])->flags, kWithdrawn);
  EXPECT_EQ(send(group, 1).ordinal, 2U);
}

TEST_F(RecordedNotes, MessagesAreRecordedWithoutACountIfTheTableIsFull) {
  const int32_t group = open();
  uint64_t uncounted = 0;
  for (int peer = 0; peer < 3 * static_cast<int>(kPeerCounts); ++peer) {
    const Pending pending = send(group, peer);
    EXPECT_EQ(pending.ordinal == 0, pending.peer_count < 0);
    EXPECT_NE(pending.record, Pending::kNoRecord);
    if (pending.ordinal == 0) ++uncounted;
    writer_->completed(pending);
  }
  EXPECT_EQ(ring_->groups[0].dropped, uncounted);
  EXPECT_EQ(ring_->groups[0].completed, 0U);
  EXPECT_GE(uncounted, 2 * kPeerCounts);
  EXPECT_LE(uncounted, 2 * kPeerCounts + kPeerCounts / 4) << "most entries are used";
}

TEST_F(RecordedNotes, ReusingAGroupsEntryRemovesItsCounts) {
  for (size_t i = 1; i < kGroups; ++i)
    open();
  const int32_t former = open();
  const Pending sent = send(former, 3);
  send(former, 3);
  writer_->set_state(former, GroupState::closed);
  EXPECT_EQ(count(sent).called, 2U);
  const int32_t present = open();
  EXPECT_EQ(count(sent).key, 0U);
  EXPECT_EQ(send(present, 3).ordinal, 1U);
  writer_->completed(sent);
  for (const PeerCount& each : ring_->peers)
    EXPECT_EQ(each.completed, 0U);
}

TEST_F(RecordedNotes, ConcurrentMessagesAreAllCounted) {
  constexpr uint64_t kThreads = 4;
  constexpr uint64_t kRounds = 2'000;
  constexpr int kPeers = 5;
  const int32_t group = open();
  {
    std::vector<std::jthread> threads;
    for (uint64_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (uint64_t round = 0; round < kRounds; ++round) {
          for (int peer = 0; peer < kPeers; ++peer)
            writer_->completed(send(group, peer));
        }
      });
    }
  }
  std::map<uint64_t, int> seen;
  for (const PeerCount& each : ring_->peers) {
    if (each.key == 0) continue;
    ++seen[each.key];
    EXPECT_EQ(each.called, kThreads * kRounds);
    EXPECT_EQ(each.completed, kThreads * kRounds);
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(kPeers));
  EXPECT_EQ(ring_->head.next_record, kThreads * kRounds * kPeers);
}

// ---- sections and failures

TEST_F(RecordedNotes, SectionsNest) {
  const Notes& notes = ring_->notes;
  writer_->enter_section("epoch");
  writer_->enter_section("checkpoint of " + std::string(200, 'x'));
  EXPECT_EQ(notes.depth, 2U);
  EXPECT_EQ(text_in(notes.sections[0], kWordsOfText), "epoch");
  EXPECT_EQ(text_in(notes.sections[1], kWordsOfText),
            "checkpoint of " + std::string(127 - 14, 'x'));
  EXPECT_GE(notes.section_ticks[1], notes.section_ticks[0]);
  writer_->leave_section();
  EXPECT_EQ(notes.depth, 1U);
  writer_->enter_section("b");
  EXPECT_EQ(text_in(notes.sections[1], kWordsOfText), "b") << "nothing of the longer name is left";
  for (int i = 0; i < 5; ++i)
    writer_->leave_section();
  EXPECT_EQ(notes.depth, 0U);
}

TEST_F(RecordedNotes, SectionsBeyondTheDepthHaveNoTextAndKeepOthers) {
  for (size_t i = 0; i < kSections + 3; ++i)
    writer_->enter_section(std::to_string(i));
  EXPECT_EQ(ring_->notes.depth, kSections + 3);
  for (size_t i = 0; i < kSections; ++i)
    EXPECT_EQ(text_in(ring_->notes.sections[i], kWordsOfText), std::to_string(i));
  EXPECT_EQ(ring_->notes.failed_ticks, 0U);
}

TEST_F(RecordedNotes, TheFirstFailureIsKept) {
  const int32_t group = open();
  writer_->note_failure(group, std::string(2'000, 'x'));
  writer_->note_failure(-1, "rank 3 died");
  const Notes& notes = ring_->notes;
  EXPECT_EQ(text_in(notes.failure, std::size(notes.failure)), std::string(1'023, 'x'));
  EXPECT_EQ(notes.failed_group, static_cast<uint64_t>(group));
  EXPECT_NE(notes.failed_ticks, 0U);
}

TEST_F(RecordedNotes, AFailureMayHaveNoGroup) {
  writer_->note_failure(-1, "rank 3 died");
  EXPECT_EQ(text_in(ring_->notes.failure, std::size(ring_->notes.failure)), "rank 3 died");
  EXPECT_EQ(ring_->notes.failed_group, 0U);
}

}  // namespace
}  // namespace muster::ring
