#include "agent/hang/ring_reader.h"

#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/unit/agent/hang/sound_records.h"
#include "tests/unit/rendezvous/ring/ring_harness.h"

namespace muster {
namespace {

using ring::CallKind;
using ring::ElementType;
using ring::GroupState;
using ring::Reduction;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr ring::Call kCall{.kind = CallKind::all_reduce,
                           .type = ElementType::float32,
                           .reduction = Reduction::sum,
                           .is_synchronous = true,
                           .count = 262144};

// A ring and a writer whose ticks are nanoseconds; like a hostile writer, a test may set any word.
class RingReaderTest : public testing::Test {
 protected:
  ring::RingWriter& attach() {
    writer_ =
        ring::RingWriter::attach(ring_.text(), ring::Source::worker_lib, ring_.why, /*tsc=*/false);
    CHECK(writer_ != nullptr);
    return *writer_;
  }
  // Opens a group of 8, the first in the table.
  int32_t open_world() {
    const int32_t world = attach().open_group(
        {.id = "id-1", .name = "world", .ranks = "0-7", .size = 8, .own_rank = 3});
    writer_->set_state(world, GroupState::ready);
    return world;
  }
  // Records one call of that group, the first record.
  ring::Record& record_call() {
    const int32_t world = open_world();
    writer_->called(world, 1, kCall, nullptr);
    return ring_->records[0];
  }
  ring::Group& world() { return ring_->groups[0]; }
  RecordedState state() const {
    auto state = reader_.state();
    CHECK(state);
    return *std::move(state);
  }
  RecordedCall only_call() const {
    auto calls = reader_.calls(ring::kRecords);
    CHECK(calls.size() == 1);
    return calls.front();
  }

  ring::TestRing ring_;
  const RingReader reader_ = RingReader::open({ring_.fd(), ring::kTestNonce}).value();
  std::unique_ptr<ring::RingWriter> writer_;
};

void put_bytes(ring::Word* words, std::string_view bytes) {
  std::memcpy(static_cast<void*>(words), bytes.data(), bytes.size());
}

TEST_F(RingReaderTest, FindsCollectivesBetweenMessagesAndOldCallsOfAGivenGroup) {
  const int32_t world = open_world();
  const int32_t rare = writer_->open_group({.id = "rare", .size = 8, .own_rank = 3});
  writer_->called(rare, 1, kCall, nullptr);
  writer_->called(rare, 2, kCall, nullptr);
  ring::Call send = kCall;
  send.kind = ring::CallKind::send;
  for (uint64_t ordinal = 1; ordinal <= 50; ++ordinal) {
    for (send.root = 0; send.root < 3; ++send.root)
      writer_->message_called(world, send, 0, nullptr);
    writer_->called(world, ordinal, kCall, nullptr);
  }
  const auto seen = [&](const std::set<uint32_t>& also) {
    std::vector<std::string> calls;
    for (const RecordedCall& call : reader_.recent_calls(4, also))
      calls.push_back(fmt::format("{}{} {}", ring::is_message(call.call.kind) ? "message " : "",
                                  call.group, call.ordinal));
    return calls;
  };
  const auto w = static_cast<uint32_t>(world);
  const std::vector<std::string> last{
      fmt::format("{} 47", w),         fmt::format("{} 48", w),
      fmt::format("{} 49", w),         fmt::format("message {} 50", w),
      fmt::format("message {} 50", w), fmt::format("message {} 50", w),
      fmt::format("{} 50", w)};
  EXPECT_EQ(seen({}), last);
  std::vector<std::string> with_rare = last;
  with_rare.insert(with_rare.begin(), fmt::format("{} 2", rare));
  EXPECT_EQ(seen({w, static_cast<uint32_t>(rare)}), with_rare);
}

TEST_F(RingReaderTest, OpensOnlyARingWithItsNonce) {
  const auto other = RingReader::open({ring_.fd(), ring::kTestNonce + 1});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ExitCode::environment);
  EXPECT_NE(other.error().message, "");
}

TEST_F(RingReaderTest, ReadsNothingUntilAProcessAttaches) {
  EXPECT_EQ(reader_.state(), std::nullopt);
  EXPECT_THAT(reader_.calls(8), IsEmpty());
  EXPECT_EQ(reader_.attachments(), 0u);
  const Instant before = ring_now();
  attach();
  EXPECT_TRUE(reader_.state().has_value());
  EXPECT_EQ(reader_.attachments(), 1u);
  EXPECT_EQ(state().owner, getpid());
  EXPECT_NE(state().owner_started, 0u);
  EXPECT_EQ(state().source, ring::Source::worker_lib);
  EXPECT_EQ(state().generation, 1u);
  EXPECT_GE(state().attached, before);
  EXPECT_LE(state().attached, ring_now());
}

TEST_F(RingReaderTest, ReadsTheRecordsOfAProcessThatGaveUpTheRing) {
  record_call();
  writer_.reset();
  EXPECT_TRUE(reader_.state().has_value());
  EXPECT_EQ(state().owner, 0);
  EXPECT_THAT(state().groups, SizeIs(1));
  EXPECT_EQ(only_call().ordinal, 1u);
}

TEST_F(RingReaderTest, ReadsNothingWhileTheRingIsTakenOver) {
  record_call();
  ring_->head.generation = 2;
  EXPECT_EQ(reader_.state(), std::nullopt);
  EXPECT_THAT(reader_.calls(8), IsEmpty());
}

TEST_F(RingReaderTest, ReadsAGroupAsItWasRecorded) {
  const Instant before = ring_now();
  const int32_t world = open_world();
  ring::Pending last;
  for (uint64_t ordinal = 1; ordinal <= 33; ++ordinal) {
    last = writer_->called(world, ordinal, kCall, nullptr);
    if (ordinal <= 32) writer_->completed(last);
  }
  const RecordedState seen = state();
  ASSERT_THAT(seen.groups, SizeIs(1));
  const RecordedGroup& group = seen.groups[0];
  EXPECT_EQ(group.handle, static_cast<uint32_t>(world));
  EXPECT_EQ(group.state, GroupState::ready);
  EXPECT_EQ(group.id + " " + group.name + " " + group.ranks, "id-1 world 0-7");
  EXPECT_EQ(group.size, 8);
  EXPECT_EQ(group.own_rank, 3);
  EXPECT_FALSE(group.completion_is_late);
  EXPECT_EQ(group.called, 33u);
  EXPECT_EQ(group.completed, 32u);
  EXPECT_GE(group.state_since, before);
  EXPECT_GE(group.called_at, group.state_since);
  EXPECT_LE(group.called_at, ring_now());
  ASSERT_THAT(group.hashes, SizeIs(2));
  EXPECT_EQ(group.hashes[0].ordinal, 16u);
  EXPECT_EQ(group.hashes[1].ordinal, 32u);
  EXPECT_EQ(group.hashes[1].hash, ring_->groups[0].hash[2]);
  EXPECT_EQ(seen.calls, 33u);
  EXPECT_EQ(seen.failure, std::nullopt);
  EXPECT_THAT(seen.sections, IsEmpty());
  EXPECT_EQ(seen.garbage, 0u);
}

TEST_F(RingReaderTest, ReadsWhetherCompletionsAreSeen) {
  const int32_t world = open_world();
  EXPECT_EQ(state().looked, std::nullopt);
  EXPECT_FALSE(completions_are_stale(state(), ring_now() + std::chrono::hours(1)));
  EXPECT_FALSE(state().groups[0].completion_is_unknown);
  const Instant before = ring_now();
  writer_->looked(writer_->now());
  writer_->set_completion_unknown(world, true);
  ASSERT_NE(state().looked, std::nullopt);
  EXPECT_GE(*state().looked, before);
  EXPECT_FALSE(completions_are_stale(state(), *state().looked + std::chrono::seconds(1)));
  EXPECT_TRUE(completions_are_stale(state(), *state().looked + std::chrono::milliseconds(1001)));
  EXPECT_TRUE(state().groups[0].completion_is_unknown);
}

TEST_F(RingReaderTest, ReadsWhetherCallsRunOnADeviceAndAreAllRecorded) {
  open_world();
  EXPECT_FALSE(state().groups[0].is_on_device);
  const int32_t other = writer_->open_group(
      {.id = "id-2", .name = "tp", .ranks = {}, .size = 8, .own_rank = 3, .is_on_device = true});
  writer_->set_state(other, GroupState::ready);
  EXPECT_TRUE(state().groups[1].is_on_device);
  EXPECT_FALSE(state().groups[1].calls_are_unknown);
  writer_->set_calls_unknown(other);
  EXPECT_TRUE(state().groups[1].is_on_device);
  EXPECT_TRUE(state().groups[1].calls_are_unknown);
}

TEST_F(RingReaderTest, AGroupWithoutCallsHasTheTimeOfItsState) {
  open_world();
  EXPECT_EQ(state().groups[0].called_at, state().groups[0].state_since);
}

TEST_F(RingReaderTest, ReadsMessagesSectionsAndTheFirstFailure) {
  const int32_t world = open_world();
  const auto message = [&](CallKind kind, int32_t peer) {
    return writer_->message_called(world, {.kind = kind, .root = peer, .count = 9}, -7, nullptr);
  };
  writer_->completed(message(CallKind::send, 1));
  message(CallKind::send, 1);
  message(CallKind::recv, -1);
  writer_->enter_section("checkpoint");
  writer_->enter_section("upload");
  writer_->note_failure(world, "rank 2 is gone");
  writer_->note_failure(world, "and rank 3");

  const RecordedState seen = state();
  ASSERT_THAT(seen.messages, SizeIs(2));
  const bool first_is_recv = seen.messages[0].is_recv;
  const RecordedMessages& sent = seen.messages[first_is_recv ? 1 : 0];
  const RecordedMessages& received = seen.messages[first_is_recv ? 0 : 1];
  EXPECT_EQ(sent.group, static_cast<uint32_t>(world));
  EXPECT_EQ(sent.peer, 1);
  EXPECT_FALSE(sent.is_recv);
  EXPECT_EQ(sent.called, 2u);
  EXPECT_EQ(sent.completed, 1u);
  EXPECT_TRUE(received.is_recv);
  EXPECT_EQ(received.peer, -1);
  EXPECT_EQ(received.completed, 0u);
  ASSERT_THAT(seen.sections, SizeIs(2));
  EXPECT_EQ(seen.sections[0].name, "checkpoint");
  EXPECT_EQ(seen.sections[1].name, "upload");
  ASSERT_TRUE(seen.failure);
  EXPECT_EQ(seen.failure->message, "rank 2 is gone");
  EXPECT_EQ(seen.failure->group, static_cast<uint32_t>(world));
  EXPECT_EQ(reader_.calls(1).at(0).tag, -7);
}

TEST_F(RingReaderTest, ReadsCallsInTheOrderOfTheirRecords) {
  const int32_t world = open_world();
  const Instant before = ring_now();
  writer_->completed(writer_->called(world, 1, kCall, this));
  const ring::Pending started = writer_->called(world, 2, kCall, nullptr);
  writer_->started(started);
  writer_->failed(started);
  writer_->withdrawn(writer_->called(world, 3, {.kind = CallKind::broadcast, .root = 2}, nullptr));

  const auto calls = reader_.calls(ring::kRecords);
  ASSERT_THAT(calls, SizeIs(3));
  EXPECT_EQ(calls[0].group, static_cast<uint32_t>(world));
  EXPECT_EQ(calls[0].call, kCall);
  EXPECT_EQ(calls[0].site_address, reinterpret_cast<uintptr_t>(this));
  EXPECT_EQ(calls[0].started, std::nullopt);
  ASSERT_TRUE(calls[0].completed);
  EXPECT_GE(calls[0].called, before);
  EXPECT_GE(*calls[0].completed, calls[0].called);
  EXPECT_LE(*calls[0].completed, ring_now());
  EXPECT_FALSE(calls[0].failed);
  EXPECT_TRUE(calls[1].failed && calls[1].started && calls[1].completed);
  EXPECT_EQ(calls[1].site_address, 0u);
  EXPECT_TRUE(calls[2].withdrawn);
  EXPECT_EQ(calls[2].completed, std::nullopt);
  EXPECT_EQ(calls[2].call, (ring::Call{.kind = CallKind::broadcast, .root = 2}));
  EXPECT_EQ(state().groups[0].called, 2u);

  const auto last = reader_.calls(2);
  ASSERT_THAT(last, SizeIs(2));
  EXPECT_EQ(last[0].ordinal, 2u);
  EXPECT_EQ(last[1].ordinal, 3u);
}

TEST_F(RingReaderTest, KeepsTheLastCallsOfManyLaps) {
  const int32_t world = open_world();
  constexpr uint64_t kCalls = 2 * ring::kRecords + 5;
  for (uint64_t ordinal = 1; ordinal <= kCalls; ++ordinal)
    writer_->completed(writer_->called(world, ordinal, kCall, nullptr));
  const auto calls = reader_.calls(2 * ring::kRecords);
  ASSERT_THAT(calls, SizeIs(ring::kRecords));
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].ordinal, kCalls - ring::kRecords + 1 + i);
    EXPECT_TRUE(calls[i].completed);
  }
}

TEST_F(RingReaderTest, KeepsCallsOfAGroupWhoseEntryWasReused) {
  const int32_t world = open_world();
  writer_->called(world, 1, kCall, nullptr);
  writer_->message_called(world, {.kind = CallKind::send, .root = 1}, 0, nullptr);
  ring_->groups[0].state = uint64_t{2} << 8 | static_cast<uint64_t>(GroupState::ready);
  ASSERT_THAT(state().groups, SizeIs(1));
  EXPECT_EQ(state().groups[0].handle, static_cast<uint32_t>(world) + ring::kGroups);
  EXPECT_THAT(state().messages, IsEmpty());
  EXPECT_EQ(reader_.calls(2).at(0).group, static_cast<uint32_t>(world));
  EXPECT_EQ(state().garbage, 0u);
}

// ---- half-written and outdated records

TEST_F(RingReaderTest, LeavesOutARecordThatIsBeingWritten) {
  ring::Record& record = record_call();
  record.sequence = 1;
  EXPECT_THAT(reader_.calls(8), IsEmpty());
}

TEST_F(RingReaderTest, LeavesOutARecordWithAnotherSequenceNumber) {
  ring::Record& record = record_call();
  for (const uint64_t sequence : {uint64_t{0}, uint64_t{4}, 2 + 2 * ring::kRecords}) {
    record.sequence = sequence;
    EXPECT_THAT(reader_.calls(8), IsEmpty()) << sequence;
  }
  ring_->head.next_record = ring::kRecords + 1;
  EXPECT_THAT(reader_.calls(8), SizeIs(1));
  record.sequence = 2;
  EXPECT_THAT(reader_.calls(8), IsEmpty());
}

TEST_F(RingReaderTest, LeavesOutACollectiveWithoutAnOrdinal) {
  ring::Record& record = record_call();
  record.ordinal = 0;
  EXPECT_THAT(reader_.calls(8), IsEmpty());
  // A message may lack one: the table of counters may have been full.
  record.what = (record.what & 0xffff) | static_cast<uint64_t>(CallKind::recv) << 16;
  EXPECT_THAT(reader_.calls(8), SizeIs(1));
}

TEST_F(RingReaderTest, TimesOfAnotherLapAreUnknown) {
  ring::Record& record = record_call();
  record.started = uint64_t{1} << 48 | 5;
  record.completed = 0;
  EXPECT_EQ(only_call().started, std::nullopt);
  record.started = 5;
  EXPECT_EQ(only_call().started, only_call().called + Duration(5));
  record.started = 0;
  ring_->head.next_record = 65537 * ring::kRecords + 1;  // Its lap has 16 bits.
  record.sequence = 2 * (65537 * ring::kRecords) + 2;
  record.completed = uint64_t{1} << 48 | 5;
  EXPECT_EQ(only_call().completed, only_call().called + Duration(5));
}

// ---- what can only be wrong

TEST_F(RingReaderTest, DropsAndCountsAnInvalidGroup) {
  open_world();
  const auto count_with = [&](ring::Word& word, uint64_t value) {
    const uint64_t before = word.exchange(value);
    const RecordedState seen = state();
    word = before;
    EXPECT_THAT(seen.groups, IsEmpty()) << value;
    EXPECT_EQ(seen.garbage, 1u) << value;
  };
  count_with(world().size, 0);
  count_with(world().size, 1'000'001);
  count_with(world().size, ~uint64_t{0});
  count_with(world().own_rank, 8);
  count_with(world().own_rank, ~uint64_t{0});
  count_with(world().state, 1 << 8 | 5);
  count_with(world().state, 2);  // Generations begin with 1.
  count_with(world().state, 512 << 8 | 2);
  count_with(world().state, uint64_t{1} << 60 | 2);
  EXPECT_EQ(state().garbage, 0u);
  world().size = 1'000'000;
  world().own_rank = 999'999;
  EXPECT_THAT(state().groups, SizeIs(1));
  world().state = uint64_t{7} << 8;
  EXPECT_THAT(state().groups, IsEmpty());
  EXPECT_EQ(state().garbage, 0u);
}

TEST_F(RingReaderTest, CapsCompletedCallsAtThoseCalled) {
  open_world();
  world().called = 5;
  world().completed = 6;
  world().started = ~uint64_t{0};
  EXPECT_EQ(state().groups[0].completed, 5u);
  EXPECT_EQ(state().groups[0].started, 5u);
  EXPECT_EQ(state().garbage, 2u);
}

TEST_F(RingReaderTest, TakesHashesOnlyInTheirPlaces) {
  open_world();
  world().called = 200;
  const auto put = [&](size_t at, uint64_t ordinal) { world().hash_ordinal[at] = ordinal; };
  put(0, 128);
  put(1, 17);        // Not a multiple of 16.
  put(2, 16);        // In the place for 32.
  put(3, 208 - 32);  // In its place.
  put(5, 208);       // For a call that was not made.
  const RecordedState seen = state();
  ASSERT_THAT(seen.groups[0].hashes, SizeIs(2));
  EXPECT_EQ(seen.groups[0].hashes[0].ordinal, 128u);
  EXPECT_EQ(seen.groups[0].hashes[1].ordinal, 176u);
  EXPECT_EQ(seen.garbage, 2u);
}

TEST_F(RingReaderTest, DropsMessagesOfPeersThatTheGroupDoesNotHave) {
  const auto handle = static_cast<uint64_t>(open_world());
  ring::PeerCount& count = ring_->peers[77];
  const auto put = [&](uint64_t key) {
    count.key = key;
    count.called = 3;
    count.completed = 4;
  };
  const uint64_t key = uint64_t{1} << 63 | handle << 32;
  put(key | 8);
  ASSERT_THAT(state().messages, SizeIs(1));
  EXPECT_EQ(state().messages[0].peer, 7);
  EXPECT_EQ(state().messages[0].completed, 3u);
  EXPECT_EQ(state().garbage, 1u);  // More were completed than called.
  put(key | 9);
  EXPECT_THAT(state().messages, IsEmpty());
  EXPECT_EQ(state().garbage, 1u);
  put(handle << 32 | 8);
  EXPECT_THAT(state().messages, IsEmpty());
  EXPECT_EQ(state().garbage, 1u);
  put(key | 8);
  count.called = 0;  // Being freed.
  EXPECT_THAT(state().messages, IsEmpty());
  EXPECT_EQ(state().garbage, 0u);
}

TEST_F(RingReaderTest, ReadsNumbersOutOfRangeAsUnknown) {
  ring::Record& record = record_call();
  const uint64_t handle = record.what & 0xffff;
  record.what =
      handle | uint64_t{14} << 16 | uint64_t{18} << 24 | uint64_t{10} << 32 | uint64_t{512} << 48;
  record.peer = uint64_t{1'000'001};
  EXPECT_EQ(only_call().call, ring::Call{.count = 262144});
  EXPECT_EQ(only_call().site_address, 0u);
  record.what = handle | uint64_t{13} << 16 | uint64_t{17} << 24 | uint64_t{9} << 32;
  record.peer = uint64_t{1'000'000};
  EXPECT_EQ(only_call().call, (ring::Call{.kind = CallKind::allocate_shared,
                                          .type = ElementType::boolean,
                                          .reduction = Reduction::premultiplied_sum,
                                          .root = 999'999,
                                          .count = 262144}));
}

TEST_F(RingReaderTest, CountsInvalidHeadWordsAsGarbage) {
  open_world();
  ring_->head.source = 4;
  ring_->head.owner = uint64_t{1} << 31;
  EXPECT_EQ(state().source, ring::Source::none);
  EXPECT_EQ(state().owner, 0);
  EXPECT_EQ(state().garbage, 2u);
  ring_->head.source = 3;
  ring_->head.owner = ring::kAttaching | 5;  // Another process is taking it over.
  EXPECT_EQ(state().source, ring::Source::nccl_plugin);
  EXPECT_EQ(state().owner, 0);
  EXPECT_EQ(state().garbage, 0u);
}

TEST_F(RingReaderTest, ShowsTheEightOutermostSections) {
  attach().enter_section("one");
  ring_->notes.depth = ~uint64_t{0};
  for (ring::Word& ticks : ring_->notes.section_ticks)
    ticks = 1;
  EXPECT_THAT(state().sections, SizeIs(8));
  ring_->notes.section_ticks[1] = 0;  // Its name is being written.
  EXPECT_THAT(state().sections, SizeIs(1));
}

const FailureRecord kReported{.time_ns = 81'723'645,
                              .code = FailureCode::peer_failed,
                              .origin = {2, 5, 7},
                              .rank = 0,
                              .message = "all_reduce 17 of group world: rank 2 died"};

TEST_F(RingReaderTest, ReadsTheLastReportOfTheLibrary) {
  ring::Report& report = ring_->notes.report;
  EXPECT_EQ(reader_.reported(), std::nullopt);
  put_report(report, kReported);
  EXPECT_EQ(reader_.reported(), kReported);
  const FailureRecord unknown{.time_ns = 1, .code = FailureCode::stopped};
  put_report(report, unknown);
  EXPECT_EQ(reader_.reported(), unknown);
  take_back_report(report);
  EXPECT_EQ(reader_.reported(), std::nullopt);
}

TEST_F(RingReaderTest, IgnoresAnInvalidReport) {
  ring::Report& report = ring_->notes.report;
  for (const auto& [word, value] :
       {std::pair{&report.time_ns, ~uint64_t{0}}, std::pair{&report.what, ~uint64_t{0}},
        std::pair{&report.what, uint64_t{1} << 63}, std::pair{&report.origin[1], uint64_t{6}},
        std::pair{&report.origin[0], ~uint64_t{0}}, std::pair{&report.origin[1], uint64_t{2}}}) {
    put_report(report, kReported);
    *word = value;
    EXPECT_EQ(reader_.reported(), std::nullopt);
  }
  put_report(report, kReported);
  report.what = 200;
  put_bytes(report.message, "\x1b[2J\nx");
  ASSERT_TRUE(reader_.reported());
  EXPECT_EQ(reader_.reported()->code, FailureCode::unknown);
  EXPECT_EQ(reader_.reported()->message.find_first_of("\x1b\n"), std::string::npos);
}

const Departure kDeparture{.time_ns = 81'723'645,
                           .kind = DepartureKind::uncaught,
                           .pid = 4711,
                           .error = "ValueError: loss is NaN",
                           .site = "train.py:88 step",
                           .threads = "Thread-1 (upload), metrics"};

TEST_F(RingReaderTest, ReadsHowTheProgramBeganToEnd) {
  ring::DepartureNote& note = ring_->notes.departure;
  EXPECT_EQ(reader_.departure(4711), std::nullopt);
  put_departure(note, kDeparture);
  EXPECT_EQ(reader_.departure(4711), kDeparture);
  Departure longer = kDeparture;
  longer.error = std::string(300, 'x');
  put_departure(note, longer);
  EXPECT_EQ(reader_.departure(4711)->error, std::string(223, 'x'));
  EXPECT_EQ(reader_.departure(4712), std::nullopt);  // Noted by another program of the worker.
  take_back_departure(note);
  EXPECT_EQ(reader_.departure(4711), std::nullopt);
}

TEST_F(RingReaderTest, TellsAThreadThatEndedFromADeparture) {
  Departure ended = kDeparture;
  ended.kind = DepartureKind::thread_ended;
  put_departure(ring_->notes.departure, ended);
  EXPECT_EQ(reader_.departure(4711), std::nullopt);
  EXPECT_EQ(reader_.ended_thread(4711), ended);
  put_departure(ring_->notes.departure, kDeparture);
  EXPECT_EQ(reader_.departure(4711), kDeparture);
  EXPECT_EQ(reader_.ended_thread(4711), std::nullopt);
}

TEST_F(RingReaderTest, BelievesTheDepartureOfTheProcessThatRecords) {
  attach();
  Departure own = kDeparture;
  own.pid = getpid();
  put_departure(ring_->notes.departure, own);
  EXPECT_EQ(reader_.departure(4711), own);
}

TEST_F(RingReaderTest, IgnoresAnInvalidDeparture) {
  ring::DepartureNote& note = ring_->notes.departure;
  for (const auto& [word, value] :
       {std::pair{&note.time_ns, ~uint64_t{0}}, std::pair{&note.what, ~uint64_t{0}},
        std::pair{&note.what, uint64_t{1} << 63}, std::pair{&note.what, uint64_t{200}},
        std::pair{&note.what, uint64_t{4711} << 32}}) {
    put_departure(note, kDeparture);
    *word = value;
    EXPECT_EQ(reader_.departure(4711), std::nullopt);
  }
  put_departure(note, kDeparture);
  put_bytes(note.error, "\x1b[2J\nx");
  ASSERT_TRUE(reader_.departure(4711));
  EXPECT_EQ(reader_.departure(4711)->error.find_first_of("\x1b\n"), std::string::npos);
}

TEST_F(RingReaderTest, DropsAFailureOfAnInvalidGroup) {
  attach().note_failure(0, "lost");
  EXPECT_EQ(state().failure->group, 0u);
  ring_->notes.failed_group = 0x10000;
  EXPECT_EQ(state().failure, std::nullopt);
  EXPECT_EQ(state().garbage, 1u);
}

// ---- text

TEST_F(RingReaderTest, TextsAreValidUtf8WithoutControlCharacters) {
  open_world();
  put_bytes(world().name, {"a\x1b[31mb\nc\xff-d\0 and more", 22});
  EXPECT_EQ(state().groups[0].name, "abc\xEF\xBF\xBD-d");
}

TEST_F(RingReaderTest, TextsEndWithTheirField) {
  open_world();
  put_bytes(world().id, std::string(128, 'x'));
  put_bytes(world().name, std::string(128, '\xff'));
  EXPECT_EQ(state().groups[0].id, std::string(128, 'x'));
  EXPECT_EQ(state().groups[0].name.size(), 3u * 128);
}

TEST_F(RingReaderTest, ASiteIsItsTextOrElseItsAddress) {
  ring::Record& record = record_call();
  record.what = (record.what & 0xffff'ffff'ffff) | uint64_t{511} << 48;
  ring_->sites[511].address = 77;
  EXPECT_EQ(only_call().site_address, 77u);
  put_bytes(ring_->sites[511].text, "train.py:88 step");
  EXPECT_EQ(only_call().site, "train.py:88 step");
  EXPECT_EQ(only_call().site_address, 0u);
}

// ---- times

TEST_F(RingReaderTest, TimesAreBetweenTheAttachmentAndNow) {
  ring::Record& record = record_call();
  const Instant attached = state().attached;
  for (const uint64_t future : {ring::monotonic_ns() + 3'600'000'000'000, ~uint64_t{0}}) {
    const Instant before = ring_now();
    record.called_ticks = future;
    record.completed = 5;
    world().called_ticks = future;
    const Instant called = only_call().called;
    EXPECT_TRUE(called >= before && called <= ring_now());
    const Instant completed = only_call().completed.value();
    EXPECT_TRUE(completed >= before && completed <= ring_now());
    const Instant moved = state().groups[0].called_at;
    EXPECT_TRUE(moved >= before && moved <= ring_now());
  }
  record.called_ticks = 5;
  record.completed = 0;
  EXPECT_EQ(only_call().called, attached);
  world().state_ticks = 0;
  EXPECT_EQ(state().groups[0].state_since, attached);
}

TEST_F(RingReaderTest, AnInvalidClockShowsAllTimesAsNow) {
  record_call();
  const auto check = [&](ring::Word& word, uint64_t value) {
    const uint64_t kept = word.exchange(value);
    const Instant before = ring_now();
    const RecordedState seen = state();
    const Instant called = only_call().called;
    const Instant after = ring_now();
    word = kept;
    EXPECT_TRUE(seen.attached >= before && seen.attached <= after) << value;
    EXPECT_EQ(seen.groups[0].called_at, seen.attached) << value;
    EXPECT_TRUE(called >= before && called <= after) << value;
    EXPECT_EQ(seen.garbage, 1u) << value;
  };
  check(ring_->head.attached_ticks, ~uint64_t{0});
  check(ring_->head.attached_ns, ~uint64_t{0});
  check(ring_->head.ticks_are_tsc, 2);
  EXPECT_EQ(state().garbage, 0u);
}

TEST_F(RingReaderTest, ConvertsTicksOfAnyRateToNanoseconds) {
  record_call();
  const uint64_t ns = ring::monotonic_ns();
  ring_->head.attached_ns = ns - 1'000'000'000;
  ring_->head.attached_ticks = ns - 2'000'000'000;  // Two ticks per nanosecond until now.
  ring_->records[0].called_ticks = ns - 1'000'000'000;
  const Duration since = only_call().called - state().attached;
  EXPECT_GE(since.count(), 500'000'000);
  EXPECT_LT(since.count(), 1'000'000'000);
}

// Reads on until the call `stop_at`, which is left for the next reading, and returns the ordinals.
std::vector<uint64_t> ordinals_from(const RingReader& reader, RingPosition& position,
                                    uint64_t stop_at = 0) {
  std::vector<uint64_t> ordinals;
  reader.read_on(position, [&](const CallGlance& call) {
    if (call.ordinal == stop_at) return false;
    ordinals.push_back(call.ordinal);
    return true;
  });
  return ordinals;
}

TEST_F(RingReaderTest, ContinuesWhereItStopped) {
  const int32_t world = open_world();
  RingPosition position;
  writer_->called(world, 1, kCall, nullptr);
  EXPECT_THAT(ordinals_from(reader_, position), ElementsAre(1));
  EXPECT_THAT(ordinals_from(reader_, position), IsEmpty());
  for (const uint64_t ordinal : {2U, 3U, 4U})
    writer_->called(world, ordinal, kCall, nullptr);
  EXPECT_THAT(ordinals_from(reader_, position, 3), ElementsAre(2));
  EXPECT_THAT(ordinals_from(reader_, position), ElementsAre(3, 4));
  EXPECT_EQ(position.overwritten, 0U);
}

TEST_F(RingReaderTest, CountsCallsOverwrittenBeforeTheyWereRead) {
  const int32_t world = open_world();
  RingPosition position;
  for (uint64_t ordinal = 1; ordinal <= ring::kRecords + 10; ++ordinal)
    writer_->called(world, ordinal, kCall, nullptr);
  const auto ordinals = ordinals_from(reader_, position);
  EXPECT_THAT(ordinals, SizeIs(ring::kRecords));
  EXPECT_EQ(ordinals.front(), 11U);
  EXPECT_EQ(position.overwritten, 10U);
}

TEST_F(RingReaderTest, WaitsOneReadingForARecordThatIsBeingWritten) {
  const int32_t world = open_world();
  RingPosition position;
  for (const uint64_t ordinal : {1U, 2U, 3U})
    writer_->called(world, ordinal, kCall, nullptr);
  ring_->records[1].sequence = 2 * 1 + 1;
  EXPECT_THAT(ordinals_from(reader_, position), ElementsAre(1));
  EXPECT_THAT(ordinals_from(reader_, position), ElementsAre(3));
  EXPECT_EQ(position.overwritten, 1U);
}

TEST_F(RingReaderTest, StartsOverWithTheNextOwner) {
  const int32_t world = open_world();
  RingPosition position;
  for (const uint64_t ordinal : {1U, 2U})
    writer_->called(world, ordinal, kCall, nullptr);
  EXPECT_THAT(ordinals_from(reader_, position), ElementsAre(1, 2));
  writer_.reset();
  record_call();
  EXPECT_THAT(ordinals_from(reader_, position), ElementsAre(1));
}

TEST_F(RingReaderTest, ReadsASingleCallUntilItIsOverwritten) {
  const int32_t world = open_world();
  RingPosition position;
  const ring::Pending pending = writer_->called(world, 1, kCall, nullptr);
  ordinals_from(reader_, position);
  EXPECT_FALSE(reader_.call(position, 0)->completed);
  writer_->completed(pending);
  ASSERT_TRUE(reader_.call(position, 0)->completed);
  EXPECT_EQ(reader_.call(position, 0)->call.count, kCall.count);
  for (uint64_t ordinal = 2; ordinal <= ring::kRecords + 1; ++ordinal)
    writer_->called(world, ordinal, kCall, nullptr);
  EXPECT_FALSE(reader_.call(position, 0));
}

}  // namespace
}  // namespace muster
