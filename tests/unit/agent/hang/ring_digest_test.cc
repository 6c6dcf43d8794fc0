#include "agent/hang/ring_digest.h"

#include <gtest/gtest.h>

namespace muster::hang {
namespace {

using std::chrono::seconds;

constexpr Instant kNow{seconds(100)};

RecordedGroup world(uint32_t handle) {
  RecordedGroup group;
  group.handle = handle;
  group.state = ring::GroupState::ready;
  group.id = "world";
  group.name = "world";
  group.ranks = "0-2,5";
  group.size = 4;
  group.own_rank = 3;
  group.called = 2;
  group.completed = 1;
  group.state_since = Instant(seconds(1));
  return group;
}

RecordedCall ring_call_of(uint32_t group, uint64_t ordinal, ring::CallKind kind) {
  RecordedCall call;
  call.group = group;
  call.ordinal = ordinal;
  call.call.kind = kind;
  call.called = Instant(seconds(10 + static_cast<int>(ordinal)));
  return call;
}

// A process with several GPUs has such groups; which of its members sent a message is unknown.
TEST(RingDigest, ShowsOneMemberIfAProcessHasSeveralOfAGroup) {
  RecordedState state;
  state.groups = {world(1), world(2)};
  state.groups[1].own_rank = 2;
  for (const uint32_t handle : {2U, 1U}) {
    RecordedMessages sent;
    sent.group = handle;
    sent.peer = 1;
    sent.called = 100 * handle;
    state.messages.push_back(sent);
  }
  const RankDigest digest = digest_of(5, state, {}, kNow);
  ASSERT_EQ(digest.groups.size(), 1U);
  EXPECT_EQ(digest.groups[0].own_rank, 3);
  ASSERT_EQ(digest.messages.size(), 1U);
  EXPECT_EQ(digest.messages[0].called, 100U);
}

TEST(RingDigest, HoldsTheGroupsWithTheirMembersAndCalls) {
  RecordedState state;
  state.generation = 7;
  state.source = ring::Source::worker_lib;
  state.groups = {world(129)};
  state.groups[0].hashes = {{16, 99}};
  state.sections = {{"epoch", kNow}, {"checkpoint", kNow}};
  std::vector<RecordedCall> calls = {ring_call_of(129, 1, ring::CallKind::barrier),
                                     ring_call_of(129, 2, ring::CallKind::all_reduce)};
  calls[1].site_address = 0x1234;

  const RankDigest digest = digest_of(5, state, calls, kNow);

  GroupDigest group;
  group.id = "world";
  group.name = "world";
  group.ranks = {0, 1, 2, 5};
  group.size = 4;
  group.own_rank = 3;
  group.since = Instant(seconds(1));
  group.called = 2;
  group.completed = 1;
  group.calls = {{1, {.kind = ring::CallKind::barrier}, Instant(seconds(11)), ""},
                 {2, {.kind = ring::CallKind::all_reduce}, Instant(seconds(12)), ""}};
  group.hashes = {{16, 99}};
  RankDigest expected;
  expected.rank = 5;
  expected.generation = 7;
  expected.source = static_cast<int>(ring::Source::worker_lib);
  expected.at = kNow;
  expected.groups = {group};
  expected.section = "checkpoint";
  EXPECT_EQ(digest, expected);
}

TEST(RingDigest, ReportsAFailureOnlyOfALibraryThatFindsItsCause) {
  RecordedState state;
  for (const auto source : {ring::Source::worker_lib, ring::Source::python_hook}) {
    state.source = source;
    state.failure.reset();
    EXPECT_FALSE(digest_of(0, state, {}, kNow).has_failed);
    state.failure.emplace();
    EXPECT_EQ(digest_of(0, state, {}, kNow).has_failed, source == ring::Source::worker_lib);
  }
}

TEST(RingDigest, ShowsClosedGroupsAndLeavesOutCallsOfUnknownGroups) {
  RecordedState state;
  state.groups = {world(1), world(2)};
  state.groups[0].state = ring::GroupState::closed;
  state.groups[1].id = "other";
  state.messages = {{.group = 1, .peer = 0, .called = 3, .called_at = {}},
                    {.group = 9, .peer = 0, .called = 4, .called_at = {}}};
  const std::vector<RecordedCall> calls = {ring_call_of(1, 1, ring::CallKind::barrier),
                                           ring_call_of(9, 1, ring::CallKind::barrier)};
  const RankDigest digest = digest_of(0, state, calls, kNow);
  ASSERT_EQ(digest.groups.size(), 2U);
  EXPECT_EQ(digest.groups[0].phase, GroupPhase::closed);
  EXPECT_EQ(digest.groups[0].calls.size(), 1U);
  EXPECT_TRUE(digest.groups[1].calls.empty());
  ASSERT_EQ(digest.messages.size(), 1U);
  EXPECT_EQ(digest.messages[0].group, "world");
}

TEST(RingDigest, LeavesOutCallsThatWereRefusedOrAreNotCountedYet) {
  RecordedState state;
  state.groups = {world(1)};
  std::vector<RecordedCall> calls = {ring_call_of(1, 2, ring::CallKind::barrier),
                                     ring_call_of(1, 3, ring::CallKind::barrier)};
  calls[0].withdrawn = true;
  EXPECT_TRUE(digest_of(0, state, calls, kNow).groups[0].calls.empty());
}

TEST(RingDigest, TellsCallsThatTheirRecorderMayYetWithdraw) {
  RecordedState state;
  state.groups = {world(1)};
  std::vector<RecordedCall> calls = {ring_call_of(1, 2, ring::CallKind::barrier)};
  const auto may_be_withdrawn = [&](Instant now) {
    return digest_of(0, state, calls, now).groups[0].calls[0].may_be_withdrawn;
  };
  calls[0].called = kNow;
  EXPECT_FALSE(may_be_withdrawn(kNow));  // Its recorder does not look.
  state.looked = kNow - milliseconds(1);
  EXPECT_TRUE(may_be_withdrawn(kNow + milliseconds(100)));
  EXPECT_FALSE(may_be_withdrawn(kNow + seconds(2)));  // It cannot look any more.
  calls[0].completed = kNow;
  EXPECT_FALSE(may_be_withdrawn(kNow + milliseconds(100)));
  calls[0].completed.reset();
  state.looked = kNow + milliseconds(1);
  EXPECT_FALSE(may_be_withdrawn(kNow + milliseconds(100)));
}

TEST(RingDigest, ShowsWhetherAndWhereTheLastMessageIsAwaited) {
  RecordedState state;
  state.groups = {world(1)};
  state.messages = {
      {.group = 1, .peer = 2, .is_recv = true, .called = 2, .completed = 1, .called_at = {}}};
  std::vector<RecordedCall> calls = {ring_call_of(1, 1, ring::CallKind::recv),
                                     ring_call_of(1, 2, ring::CallKind::recv),
                                     ring_call_of(1, 2, ring::CallKind::send)};
  for (RecordedCall& call : calls)
    call.call.root = 2;
  calls[1].call.is_synchronous = true;
  calls[1].site = "train.py:88 step";
  const RankDigest digest = digest_of(0, state, calls, kNow);
  ASSERT_EQ(digest.messages.size(), 1U);
  EXPECT_TRUE(digest.messages[0].is_synchronous);
  EXPECT_EQ(digest.messages[0].site, "train.py:88 step");
  EXPECT_EQ(digest.messages[0].called, 2U);
}

TEST(RingDigest, MarksCompletionsUnknownIfTheProcessDidNotPollLately) {
  RecordedState state;
  state.groups = {world(1), world(2)};
  state.groups[1].id = "other";
  state.groups[1].completion_is_unknown = true;
  state.messages = {
      {.group = 1, .peer = 2, .is_recv = true, .called = 1, .completed = 0, .called_at = {}}};
  std::vector<RecordedCall> calls = {ring_call_of(1, 1, ring::CallKind::recv)};
  calls[0].call.root = 2;
  calls[0].call.is_synchronous = true;
  state.looked = kNow - std::chrono::milliseconds(300);
  RankDigest digest = digest_of(0, state, calls, kNow);
  EXPECT_FALSE(digest.groups[0].completion_is_unknown);
  EXPECT_TRUE(digest.groups[1].completion_is_unknown);
  EXPECT_TRUE(digest.messages[0].is_synchronous);
  state.looked = kNow - seconds(2);
  digest = digest_of(0, state, calls, kNow);
  EXPECT_TRUE(digest.groups[0].completion_is_unknown);
  EXPECT_FALSE(digest.messages[0].is_synchronous);
}

TEST(RingDigest, MarksDeviceCompletionsUnseenUnlessACallWasSeenToStart) {
  RecordedState state;
  state.groups = {world(1)};
  state.messages = {
      {.group = 1, .peer = 2, .is_recv = true, .called = 1, .completed = 0, .called_at = {}}};
  state.looked = kNow - seconds(2);  // By Python's hook, which does not see these calls.
  RecordedGroup& group = state.groups[0];
  group.is_on_device = true;
  group.started = group.completed = 1;
  RankDigest digest = digest_of(0, state, {}, kNow);
  EXPECT_FALSE(digest.groups[0].completion_is_unknown);
  EXPECT_TRUE(digest.groups[0].is_on_device);
  EXPECT_TRUE(digest.groups[0].completion_is_unseen);
  EXPECT_TRUE(digest.messages[0].completion_is_unseen);
  group.started = 2;
  digest = digest_of(0, state, {}, kNow);
  EXPECT_FALSE(digest.groups[0].completion_is_unseen);
}

TEST(RingDigest, LeavesOutGroupsWhoseCallsAreNotAllRecorded) {
  RecordedState state;
  state.groups = {world(1)};
  state.groups[0].calls_are_unknown = true;
  state.messages = {{.group = 1, .peer = 2, .called = 1, .called_at = {}}};
  const RankDigest digest = digest_of(0, state, {ring_call_of(1, 1, ring::CallKind::recv)}, kNow);
  EXPECT_TRUE(digest.groups.empty());
  EXPECT_TRUE(digest.messages.empty());
}

TEST(RingDigest, TakesMalformedMemberListsForUnknown) {
  for (const char* ranks :
       {"", "0-2", "0-2,5,6", "x", "0-", "3-1,4", "-1-2", "0-2,5x", "0-99999999999"}) {
    RecordedState state;
    state.groups = {world(1)};
    state.groups[0].ranks = ranks;
    EXPECT_TRUE(digest_of(0, state, {}, kNow).groups[0].ranks.empty()) << ranks;
  }
}

}  // namespace
}  // namespace muster::hang
