#include "agent/hang/records_text.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

using namespace std::chrono_literals;
using ring::CallKind;
using ring::ElementType;
using ring::GroupState;
using ring::Reduction;

constexpr uint32_t kWorld = 128;
constexpr uint32_t kPipeline = 129;
constexpr Instant kLookedAt{1000s};

constexpr ring::Call kGradients{.kind = CallKind::all_reduce,
                                .type = ElementType::float32,
                                .reduction = Reduction::sum,
                                .is_synchronous = true,
                                .count = 262144};

RecordedGroup group(uint32_t handle, const std::string& name, int size) {
  RecordedGroup group;
  group.handle = handle;
  group.state = GroupState::ready;
  group.id = name + "-id";
  group.name = name;
  group.size = size;
  group.own_rank = 0;
  group.state_since = kLookedAt - 60s;
  group.called_at = kLookedAt - 60s;
  return group;
}

RecordedCall call(uint64_t ordinal, const ring::Call& what, Duration ago) {
  RecordedCall call;
  call.group = kWorld;
  call.ordinal = ordinal;
  call.call = what;
  call.called = kLookedAt - ago;
  call.site = "train.py:88 step";
  return call;
}

RecordedCall complete(RecordedCall call, Duration took) {
  call.completed = call.called + took;
  return call;
}

// Rank 3, which has called 1042 collectives in group 'world' and completed 1041.
RankRing rank_3() {
  RankRing ring;
  ring.rank = 3;
  ring.pid = 4711;
  RecordedState& state = ring.state.emplace();
  state.source = ring::Source::worker_lib;
  state.owner = 4711;
  state.attached = kLookedAt - 100s;
  state.groups = {group(kWorld, "world", 8), group(kPipeline, "pp", 2)};
  state.groups[0].ranks = "0-7";
  state.groups[0].called = 1042;
  state.groups[0].completed = 1041;
  state.groups[0].called_at = kLookedAt - 12400ms;
  state.groups[1].ranks = "0,4";
  state.groups[1].called = 17;
  state.groups[1].completed = 17;
  state.calls = 1059;
  ring.calls = {complete(call(1040, kGradients, 14200ms), 1200us),
                complete(call(1041, {.kind = CallKind::barrier}, 13s), 300ms),
                call(1042, kGradients, 12400ms)};
  return ring;
}

std::string summary(const RankRing& ring) {
  return records_of(ring, kLookedAt, 0).summary;
}

std::string text(const RankRing& ring, size_t calls_max) {
  return records_text({records_of(ring, kLookedAt, calls_max)}, calls_max > 0);
}

TEST(RecordsText, HasOneLineForEachRank) {
  RankRing between = rank_3();
  between.rank = 2;
  between.calls.pop_back();
  between.state->groups[0].called = 1041;
  RankRing none;
  none.rank = 5;
  none.pid = 13;
  EXPECT_EQ(
      records_text({records_of(between, kLookedAt, 0), records_of(rank_3(), kLookedAt, 0),
                    records_of(none, kLookedAt, 0)},
                   /*details=*/false),
      "rank 2 (pid 4711): between calls for 12.7 s; last: barrier #1041 of group 'world', called "
      "at train.py:88 step\n"
      "rank 3 (pid 4711): in all_reduce #1042 of group 'world' for 12.4 s: all_reduce (sum) of "
      "262144 float32, called at train.py:88 step\n"
      "rank 5 (pid 13): no recorder attached (a program that uses no muster library, or that has "
      "made no group yet)\n");
}

TEST(RecordsText, ShowsGroupsAndTheLastCallsOnRequest) {
  EXPECT_EQ(text(rank_3(), 2),
            "rank 3 (pid 4711): in all_reduce #1042 of group 'world' for 12.4 s: all_reduce (sum) "
            "of 262144 float32, called at train.py:88 step\n"
            "  world: 8 ranks, 1042 called, 1041 complete; pp: 2 ranks (0,4), 17 called, 17 "
            "complete\n"
            "  #1041  world  barrier                             13.0 s ago  took 300 ms  "
            "train.py:88 step\n"
            "  #1042  world  all_reduce (sum) of 262144 float32  12.4 s ago  pending      "
            "train.py:88 step\n");
}

TEST(RecordsText, CountsClosedGroupsAndThoseBeyondTheLimit) {
  RankRing ring = rank_3();
  ring.state->groups[0].state = GroupState::closed;
  for (uint32_t i = 0; i < 14; ++i)
    ring.state->groups.push_back(group(200 + i, "g" + std::to_string(i), 1));
  ring.state->groups[2].state = GroupState::failed;
  ring.calls.clear();
  const std::string shown = text(ring, 1);
  EXPECT_NE(shown.find("\n  pp: 2 ranks (0,4), 17 called, 17 complete; g0: 1 rank, 0 called, 0 "
                       "complete, failed; g1:"),
            std::string::npos)
      << shown;
  EXPECT_TRUE(shown.ends_with("g10: 1 rank, 0 called, 0 complete; 3 more; 1 closed\n")) << shown;
}

TEST(RecordsText, SaysWhatIsMissing) {
  RankRing ring = rank_3();
  ring.calls.clear();
  ring.state->dropped = 2;
  ring.state->groups_left_out = 3;
  ring.state->garbage = 4;
  EXPECT_TRUE(
      text(ring, 1).ends_with("\n  2 calls without a record; 3 groups that the recorder had "
                              "no room for; 4 entries that make no sense\n"))
      << text(ring, 1);
}

TEST(RecordsText, NamesTheProcessThatRecordsIfItIsNotTheWorker) {
  RankRing ring = rank_3();
  ring.state->owner = 4713;
  EXPECT_TRUE(text(ring, 0).starts_with("rank 3 (pid 4711, recorded by pid 4713): in "));
  ring.state->owner = 0;
  EXPECT_TRUE(text(ring, 0).starts_with("rank 3 (pid 4711): records no more calls; in "));
}

TEST(RecordsText, CannotDriveATerminal) {
  RankRecords records = records_of(rank_3(), kLookedAt, 5);
  for (std::string* const text :
       {&records.summary, &records.groups[0].name, &records.calls[0].call, &records.calls[0].site})
    *text = "\x1b[2J\nx\r" + *text;
  records.calls[1].called_ago_s = std::numeric_limits<double>::quiet_NaN();
  records.calls[2].called_ago_s = 1e300;
  records.calls[2].took_s = -1e300;
  const std::string text = records_text({records}, true);
  EXPECT_EQ(text.find_first_of("\x1b\r"), std::string::npos);
  EXPECT_NE(text.find("  0 us ago  "), std::string::npos) << text;
  EXPECT_NE(text.find("  11574 d 1 h ago  pending after 0 us"), std::string::npos) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 5);
}

// ---- the summary

TEST(RecordsSummary, IsTheOldestCallThatItsCallerWaitsFor) {
  RankRing ring = rank_3();
  ring.calls[2].call.is_synchronous = false;
  ring.calls.push_back(call(18,
                            {.kind = CallKind::send,
                             .type = ElementType::float32,
                             .is_synchronous = true,
                             .root = 1,
                             .count = 100},
                            3s));
  ring.calls.back().group = kPipeline;
  ring.calls.push_back(call(1, kGradients, 2s));
  EXPECT_EQ(summary(ring),
            "in send #18 of group 'pp' for 3.0 s: send of 100 float32 to rank 1 of the group, "
            "called at train.py:88 step");
  ring.calls[3].ordinal = 0;
  EXPECT_TRUE(summary(ring).starts_with("in send of group 'pp' for 3.0 s: ")) << summary(ring);
}

TEST(RecordsSummary, CountsAsynchronousCallsInFlight) {
  RankRing ring = rank_3();
  ring.calls[2].call = {.kind = CallKind::barrier};
  ring.calls[2].site.clear();
  EXPECT_EQ(summary(ring), "has in flight barrier #1042 of group 'world' for 12.4 s");
  ring.calls.push_back(call(1043, kGradients, 1s));
  ring.calls.back().call.is_synchronous = false;
  EXPECT_EQ(summary(ring),
            "has 2 calls in flight, the oldest barrier #1042 of group 'world' for 12.4 s");
}

TEST(RecordsSummary, NamesTheGroupThatIsForming) {
  RankRing ring = rank_3();
  ring.calls.pop_back();
  ring.state->groups[1].state = GroupState::forming;
  EXPECT_EQ(summary(ring), "waits for the members of group 'pp', 2 in all, for 1 min 0 s");
}

TEST(RecordsSummary, NamesAPendingCallThatLeftNoRecord) {
  RankRing ring = rank_3();
  ring.calls.pop_back();
  EXPECT_EQ(summary(ring), "has in flight #1042 of group 'world' for 12.4 s, which left no record");
  // The call completed between the reading of the state and that of its record.
  ring.calls.push_back(complete(call(1042, kGradients, 12400ms), 12s));
  EXPECT_EQ(summary(ring),
            "between calls for 400 ms; last: all_reduce #1042 of group 'world', called at "
            "train.py:88 step");
}

TEST(RecordsSummary, SaysHowTheLastCallEnded) {
  RankRing ring = rank_3();
  ring.calls[2].failed = true;
  EXPECT_EQ(summary(ring),
            "between calls; last: all_reduce #1042 of group 'world', failed, called 12.4 s ago at "
            "train.py:88 step");
  ring.calls[2].completed = kLookedAt - 2s;
  EXPECT_EQ(summary(ring),
            "between calls for 2.0 s; last: all_reduce #1042 of group 'world', failed, called at "
            "train.py:88 step");
}

TEST(RecordsSummary, SaysThatAPendingCallMayBeComplete) {
  RankRing ring = rank_3();
  ring.state->looked = kLookedAt - 3s;
  EXPECT_EQ(records_of(ring, kLookedAt, 9).calls[2].state, CallState::unknown);
  EXPECT_EQ(summary(ring),
            "between calls, or in all_reduce #1042 of group 'world' for 12.4 s: all_reduce (sum) "
            "of 262144 float32, called at train.py:88 step; whether it is complete cannot be seen "
            "now");
  ring.state->looked = kLookedAt;
  EXPECT_EQ(records_of(ring, kLookedAt, 9).calls[2].state, CallState::pending);
  ring.state->groups[0].completion_is_unknown = true;
  EXPECT_EQ(records_of(ring, kLookedAt, 9).calls[2].state, CallState::unknown);
}

TEST(RecordsSummary, ShowsADeviceCallAsPendingOnceItWasSeenToStart) {
  RankRing ring = rank_3();
  RecordedGroup& group = ring.state->groups[0];
  group.is_on_device = true;
  EXPECT_EQ(records_of(ring, kLookedAt, 9).calls[2].state, CallState::unknown);
  ring.calls[2].started = kLookedAt - 5s;
  EXPECT_EQ(records_of(ring, kLookedAt, 9).calls[2].state, CallState::pending);
  EXPECT_EQ(records_of(ring, kLookedAt, 9).groups[0].state, muster::GroupState::ready);
  group.calls_are_unknown = true;
  EXPECT_EQ(records_of(ring, kLookedAt, 9).groups[0].state, muster::GroupState::captured);
}

TEST(RecordsSummary, SaysThatThereWasNoCallYet) {
  RankRing ring = rank_3();
  ring.calls.clear();
  ring.state->groups.clear();
  EXPECT_EQ(summary(ring), "no call yet; attached 1 min 40 s ago");
}

TEST(RecordsSummary, EndsWithTheSectionAndTheFailure) {
  RankRing ring = rank_3();
  ring.calls.clear();
  ring.state->groups.pop_back();
  ring.state->groups[0].completed = 1042;
  ring.state->sections = {{"epoch", kLookedAt - 50s}, {"checkpoint", kLookedAt - 3100ms}};
  ring.state->failure = RecordedFailure{kWorld, "rank 2 is gone", kLookedAt - 500ms};
  EXPECT_EQ(summary(ring),
            "no call yet; attached 1 min 40 s ago; in section 'checkpoint' for 3.1 s; group "
            "'world' failed 500 ms ago: rank 2 is gone");
  ring.state->failure->group = 0;
  EXPECT_TRUE(summary(ring).ends_with("; failed 500 ms ago: rank 2 is gone"));
}

TEST(RecordsSummary, IsTheReasonWhyThereAreNoRecords) {
  RankRing ring;
  ring.why_none = "recorded by a process that does not belong to the worker";
  EXPECT_EQ(summary(ring), ring.why_none);
}

// ---- the values

TEST(RecordsOfARank, HoldTheLastCallsInFull) {
  const RankRecords records = records_of(rank_3(), kLookedAt, 1);
  EXPECT_EQ(records.source, "worker_lib");
  EXPECT_EQ(records.owner, 4711);
  EXPECT_EQ(records.recorded, 1059);
  EXPECT_EQ(records.attached_ago_s, 100.0);
  EXPECT_EQ(records.groups.size(), 2u);
  const CallLine expected{.group = "world",
                          .ordinal = 1042,
                          .operation = "all_reduce",
                          .call = "all_reduce (sum) of 262144 float32",
                          .count = 262144,
                          .type = "float32",
                          .reduction = "sum",
                          .synchronous = true,
                          .state = CallState::pending,
                          .called_ago_s = 12.4,
                          .took_s = {},
                          .site = "train.py:88 step"};
  EXPECT_EQ(records.calls, std::vector<CallLine>{expected});
  EXPECT_EQ(records_of(rank_3(), kLookedAt, 9).calls.size(), 3u);
}

TEST(RecordsOfARank, HoldTheCurrentCall) {
  EXPECT_EQ(records_of(rank_3(), kLookedAt, 0).current,
            records_of(rank_3(), kLookedAt, 1).calls[0]);
  RankRing none = rank_3();
  none.calls.clear();
  EXPECT_EQ(records_of(none, kLookedAt, 9).current, std::nullopt);
  RankRing all_complete = rank_3();
  for (RecordedCall& call : all_complete.calls)
    call.completed = kLookedAt;
  EXPECT_EQ(records_of(all_complete, kLookedAt, 0).current.value().ordinal,
            all_complete.calls.back().ordinal);
}

TEST(RecordsOfARank, HoldTheStateOfEachCall) {
  RankRing ring = rank_3();
  ring.state->groups[0].completed = 1042;
  ring.calls.push_back(call(1043, kGradients, 1s));
  ring.calls.push_back(call(1044, kGradients, 1s));
  ring.calls.back().withdrawn = true;
  ring.calls.push_back(call(4, kGradients, 1s));
  ring.calls.back().group = 4242;                               // A group that is gone.
  ring.calls.push_back(call(5, {.kind = CallKind::recv}, 1s));  // Not counted as a collective.
  std::vector<CallState> states;
  for (const CallLine& line : records_of(ring, kLookedAt, 9).calls)
    states.push_back(line.state);
  EXPECT_EQ(states,
            (std::vector<CallState>{CallState::complete, CallState::complete, CallState::complete,
                                    CallState::pending, CallState::withdrawn, CallState::abandoned,
                                    CallState::pending}));
  ring.state->groups[0].state = GroupState::closed;
  EXPECT_EQ(records_of(ring, kLookedAt, 9).calls[3].state, CallState::abandoned);
}

TEST(RecordsOfARank, HoldOnlyNumbersThatJsonReadersAccept) {
  RankRing ring = rank_3();
  ring.state->groups[0].called = ~uint64_t{0};
  ring.calls[2].ordinal = ~uint64_t{0};
  ring.calls[2].called = kLookedAt + 5s;
  const RankRecords records = records_of(ring, kLookedAt, 1);
  EXPECT_EQ(records.groups[0].called, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(records.calls[0].ordinal, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(records.calls[0].called_ago_s, 0.0);
}

TEST(RecordsOfARank, ShowTheBareAddressOfANativeSiteWithoutAName) {
  RankRing ring = rank_3();
  ring.calls[2].site.clear();
  EXPECT_EQ(records_of(ring, kLookedAt, 1).calls[0].site, "");
  ring.calls[2].site_address = 0x55d0c8a41a2b;
  EXPECT_EQ(records_of(ring, kLookedAt, 1).calls[0].site, "0x55d0c8a41a2b");
}

}  // namespace
}  // namespace muster
