// Tests of collectives and their records.
#include "rendezvous/ring/ring_writer.h"

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/unit/rendezvous/ring/ring_harness.h"

namespace muster::ring {
namespace {

const Call kSum{CallKind::all_reduce, ElementType::float32, Reduction::sum, false, true, -1, 8};
const Call kMax{CallKind::all_reduce, ElementType::float32, Reduction::max, false, true, -1, 8};

class RecordedCalls : public testing::Test {
 protected:
  RecordedCalls() : writer_(ring_.attach()) {
    group_ = writer_->open_group({.id = "world", .name = "world", .size = 2, .own_rank = 1});
  }

  Pending call(uint64_t ordinal, const Call& call = kSum) {
    return writer_->called(group_, ordinal, call, nullptr);
  }
  Record& record(uint64_t number) { return ring_->records[number % kRecords]; }
  SeenRecord seen(uint64_t number) { return read_record(record(number)).value(); }
  Group& group() { return ring_->groups[static_cast<size_t>(group_) % kGroups]; }

  TestRing ring_;
  std::unique_ptr<RingWriter> writer_;
  int32_t group_ = -1;
};

TEST_F(RecordedCalls, ACallIsCountedAndRecorded) {
  const Call reduce{CallKind::reduce, ElementType::bfloat16, Reduction::average, true, true, 1,
                    uint64_t{1} << 40};
  const int place = 0;
  const uint64_t before = ticks(tsc_is_invariant());
  const Pending pending = writer_->called(group_, 1, reduce, &place);
  const SeenRecord seen = this->seen(0);
  EXPECT_EQ(seen.group, group_);
  EXPECT_EQ(seen.call, reduce);
  EXPECT_EQ(seen.flags, kIsV | kIsSynchronous);
  EXPECT_EQ(seen.tag, 0);
  EXPECT_EQ(seen.ordinal, 1U);
  EXPECT_GE(seen.called_ticks, before);
  EXPECT_EQ(seen.called_ticks, pending.called_ticks);
  EXPECT_EQ(seen.started, 0U);
  EXPECT_EQ(seen.completed, 0U);
  EXPECT_EQ(ring_->sites[seen.site].address, reinterpret_cast<uintptr_t>(&place));
  EXPECT_EQ(group().called, 1U);
  EXPECT_EQ(group().called_ticks, pending.called_ticks);
  EXPECT_EQ(group().completed, 0U);
  EXPECT_EQ(ring_->head.next_record, 1U);
}

TEST_F(RecordedCalls, StartAndCompletionAreRecordedWithTheirTimes) {
  const Pending pending = call(1);
  writer_->launched(pending);
  EXPECT_EQ(group().launched, 1U);
  writer_->started(pending);
  EXPECT_EQ(group().started, 1U);
  EXPECT_GE(ticks_of(seen(0).started), 1U);
  writer_->completed(pending);
  EXPECT_EQ(group().completed, 1U);
  EXPECT_GE(ticks_of(seen(0).completed), ticks_of(seen(0).started));
  EXPECT_EQ(group().completed_ticks, pending.called_ticks + ticks_of(seen(0).completed));
  EXPECT_EQ(seen(0).flags, kIsSynchronous);
}

TEST_F(RecordedCalls, CountersNeverMoveBackwards) {
  const Pending first = call(1);
  const Pending second = call(2);
  writer_->completed(second);
  const uint64_t when = group().completed_ticks;
  writer_->launched(second);
  writer_->started(second);
  writer_->completed(first);
  writer_->launched(first);
  writer_->started(first);
  EXPECT_EQ(group().completed, 2U) << "completion of the second call covers the first";
  EXPECT_EQ(group().completed_ticks, when);
  EXPECT_EQ(group().launched, 2U);
  EXPECT_EQ(group().started, 2U);
  EXPECT_NE(seen(0).completed, 0U);
}

TEST_F(RecordedCalls, AFailedCallIsCompleteWithAMark) {
  writer_->failed(call(1));
  EXPECT_EQ(seen(0).flags, kIsSynchronous | kFailed);
  EXPECT_GE(ticks_of(seen(0).completed), 1U);
  EXPECT_EQ(group().completed, 1U);
}

TEST_F(RecordedCalls, TooLongAndNegativeTimesAreClamped) {
  Pending pending = call(1);
  pending.called_ticks -= uint64_t{1} << 50;
  writer_->completed(pending);
  EXPECT_EQ(ticks_of(seen(0).completed), (uint64_t{1} << 48) - 1);
  EXPECT_EQ(lap_of(seen(0).completed), 0U);
  pending = call(2);
  pending.called_ticks += uint64_t{1} << 50;
  writer_->completed(pending);
  EXPECT_EQ(ticks_of(seen(1).completed), 1U);
}

TEST_F(RecordedCalls, ACompletionIsRecordedOnce) {
  const Pending pending = call(1);
  writer_->completed(pending);
  const uint64_t told = seen(0).completed;
  writer_->completed(pending);
  EXPECT_EQ(seen(0).completed, told);
}

// ---- slots of other calls

TEST_F(RecordedCalls, SlotsAreReusedAfterALap) {
  for (uint64_t ordinal = 1; ordinal <= kRecords + 3; ++ordinal)
    writer_->completed(call(ordinal));
  EXPECT_EQ(seen(2).ordinal, kRecords + 3);
  EXPECT_EQ(lap_of(seen(2).completed), 1U);
  EXPECT_EQ(seen(3).ordinal, 4U);
  EXPECT_EQ(lap_of(seen(3).completed), 0U);
  EXPECT_EQ(record(2).sequence, 2 * (kRecords + 2) + 2);
}

TEST_F(RecordedCalls, ASlotThatASlowerWriterHoldsIsSkipped) {
  for (uint64_t ordinal = 1; ordinal <= kRecords; ++ordinal)
    call(ordinal);
  record(0).sequence = 1;
  const Pending pending = call(kRecords + 1);
  EXPECT_EQ(pending.record, Pending::kNoRecord);
  EXPECT_EQ(record(0).sequence, 1U);
  EXPECT_EQ(record(0).ordinal, 1U);
  EXPECT_EQ(ring_->head.dropped, 1U);
  EXPECT_EQ(group().dropped, 1U);
  EXPECT_EQ(group().called, kRecords + 1);
  writer_->failed(pending);
  EXPECT_EQ(group().completed, kRecords + 1) << "the counters do not depend on the record";
  EXPECT_EQ(record(0).completed, 0U);
}

TEST_F(RecordedCalls, ASlotThatAFasterWriterHasFilledIsSkipped) {
  record(0).sequence = 2 * kRecords + 2;
  EXPECT_EQ(call(1).record, Pending::kNoRecord);
  EXPECT_EQ(record(0).sequence, 2 * kRecords + 2);
  EXPECT_EQ(ring_->head.dropped, 1U);
}

TEST_F(RecordedCalls, ALateEndMarksNoOtherCall) {
  const Pending first = call(1);
  const Pending second = call(2);
  for (uint64_t ordinal = 3; ordinal <= kRecords + 2; ++ordinal)
    call(ordinal);
  writer_->started(first);
  writer_->completed(first);
  writer_->failed(second);
  EXPECT_EQ(group().completed, 2U);
  EXPECT_EQ(seen(0).started, 0U);
  EXPECT_EQ(seen(0).completed, 0U);
  EXPECT_EQ(seen(1).completed, 0U);
  EXPECT_EQ(seen(1).flags, kIsSynchronous);
}

// A late end may pass its check of the sequence just before another call takes the slot.
TEST_F(RecordedCalls, ACompletionReplacesThatOfAnEarlierLap) {
  for (uint64_t ordinal = 1; ordinal <= kRecords; ++ordinal)
    call(ordinal);
  const Pending pending = call(kRecords + 1);
  record(0).completed = 5;  // The number of lap 0.
  writer_->completed(pending);
  EXPECT_EQ(lap_of(seen(0).completed), 1U);
}

// ---- hashes

std::vector<std::pair<uint64_t, uint64_t>> hashes_of(const Group& group) {
  std::vector<std::pair<uint64_t, uint64_t>> hashes;
  for (size_t i = 0; i < kHashes; ++i)
    hashes.emplace_back(group.hash_ordinal[i], group.hash[i]);
  return hashes;
}

TEST_F(RecordedCalls, TheHashIsKeptAtEvery16thCall) {
  std::vector<uint64_t> expected{0};
  for (uint64_t ordinal = 1; ordinal <= 16 * 9 + 5; ++ordinal) {
    const Call& next = ordinal % 3 == 0 ? kMax : kSum;
    expected.push_back(mixed_in(expected.back(), next));
    call(ordinal, next);
  }
  EXPECT_EQ(group().running_hash, expected.back());
  const auto hashes = hashes_of(group());
  for (uint64_t kept = 2; kept <= 9; ++kept) {
    EXPECT_EQ(hashes[kept % kHashes].first, 16 * kept);
    EXPECT_EQ(hashes[kept % kHashes].second, expected[16 * kept]);
  }
}

// ---- withdrawn calls

TEST_F(RecordedCalls, AWithdrawnCallIsNotCounted) {
  for (uint64_t ordinal = 1; ordinal <= 15; ++ordinal)
    call(ordinal);
  const uint64_t hash = group().running_hash;
  const auto before = hashes_of(group());
  const Pending refused = call(16, kMax);
  EXPECT_NE(hashes_of(group()), before);
  writer_->withdrawn(refused);
  EXPECT_EQ(group().called, 15U);
  EXPECT_EQ(group().running_hash, hash);
  EXPECT_EQ(hashes_of(group())[1].first, 0U);
  EXPECT_EQ(seen(15).flags, kIsSynchronous | kWithdrawn);
  EXPECT_EQ(seen(15).completed, 0U);
  call(16, kSum);
  EXPECT_EQ(group().called, 16U);
  EXPECT_EQ(hashes_of(group())[1], (std::pair{uint64_t{16}, mixed_in(hash, kSum)}));
}

TEST_F(RecordedCalls, ACallWithoutARecordCanBeWithdrawn) {
  record(0).sequence = 1;
  writer_->withdrawn(call(1));
  EXPECT_EQ(group().called, 0U);
  EXPECT_EQ(group().running_hash, 0U);
}

// ---- call sites

TEST_F(RecordedCalls, ACallSiteHasOneEntry) {
  std::array<char, 3> places{};
  for (uint64_t i = 0; i < 6; ++i)
    writer_->called(group_, i + 1, kSum, &places[i % 3]);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_NE(seen(i).site, kNoSite);
    EXPECT_EQ(seen(i).site, seen(i + 3).site);
    EXPECT_EQ(ring_->sites[seen(i).site].address, reinterpret_cast<uintptr_t>(&places[i]));
  }
  EXPECT_NE(seen(0).site, seen(1).site);
  call(7);
  EXPECT_EQ(seen(6).site, kNoSite) << "the call site is unknown";
}

TEST_F(RecordedCalls, CallSitesAreUnknownIfTheTableIsFull) {
  const std::vector<char> places(4 * kSites);
  size_t unknown = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    writer_->called(group_, i + 1, kSum, &places[i]);
    const size_t site = seen(i).site;
    if (site == kNoSite)
      ++unknown;
    else
      EXPECT_EQ(ring_->sites[site].address, reinterpret_cast<uintptr_t>(&places[i]));
  }
  EXPECT_GE(unknown, 3 * kSites);
  EXPECT_LE(unknown, 3 * kSites + kSites / 4) << "most entries are used";
}

// ---- other handles

// Without the mark the uncounted message would look as if it had never been sent.
TEST_F(RecordedCalls, AMessageWithoutACountMarksItsWholeGroup) {
  Call send;
  send.kind = CallKind::send;
  for (send.root = 0; group().dropped == 0; ++send.root) {
    ASSERT_LE(send.root, static_cast<int>(kPeerCounts));
    EXPECT_EQ(group().flags & kCallsAreUnknown, 0U);
    writer_->message_called(group_, send, 0, nullptr);
  }
  EXPECT_EQ(group().flags & kCallsAreUnknown, kCallsAreUnknown);
}

TEST_F(RecordedCalls, CallsWithoutAGroupAreNotRecorded) {
  for (const int32_t none : {-1, group_ + 1, group_ + 128, 1 << 20}) {
    EXPECT_EQ(writer_->called(none, 1, kSum, nullptr).group, -1) << none;
    EXPECT_EQ(writer_->message_called(none, {.kind = CallKind::send}, 0, nullptr).group, -1);
    writer_->set_state(none, GroupState::failed);
  }
  writer_->completed({});
  writer_->failed({});
  writer_->withdrawn({});
  EXPECT_EQ(ring_->head.next_record, 0U);
}

TEST(RecordedTimes, BothClocksWork) {
  for (const bool tsc : {false, tsc_is_invariant()}) {
    TestRing ring;
    const auto writer = RingWriter::attach(ring.text(), Source::python_hook, ring.why, tsc);
    EXPECT_EQ(ring->head.ticks_are_tsc, tsc ? 1U : 0U);
    EXPECT_EQ(ring->head.source, static_cast<uint64_t>(Source::python_hook));
    const int32_t group = writer->open_group({.size = 1, .own_rank = 0});
    const ClockPair before = clock_pair(tsc);
    const Pending pending = writer->called(group, 1, kSum, nullptr);
    EXPECT_GE(pending.called_ticks, before.ticks);
    EXPECT_LE(pending.called_ticks, ticks(tsc));
  }
}

// ---- no system calls

#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#define WITH_THREAD_SANITIZER  // Its runtime enters the kernel.
#endif
#endif

#ifndef WITH_THREAD_SANITIZER

// Makes every later system call except exit_group(2) kill the process with SIGSYS.
bool forbid_system_calls() {
  std::array filter{
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  const sock_fprog program{filter.size(), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(RecordedQuietly, RecordingMakesNoSystemCallAfterAttaching) {
  if (!tsc_is_invariant())
    GTEST_SKIP() << "no invariant TSC: reading the clock may enter the kernel";
  TestRing ring;
  TestChild child([&] {
    const auto writer = ring.attach();
    if (writer == nullptr || !forbid_system_calls()) return 1;
    const int32_t group = writer->open_group({.id = "a", .size = 2});
    writer->set_state(group, GroupState::ready);
    for (uint64_t ordinal = 1; ordinal <= 2 * kRecords; ++ordinal) {
      const Pending pending = writer->called(group, ordinal, kSum, &ring);
      writer->launched(pending);
      writer->started(pending);
      writer->completed(pending);
    }
    writer->withdrawn(writer->called(group, 2 * kRecords + 1, kSum, &ring));
    writer->failed(writer->message_called(group, {.kind = CallKind::send, .root = 1}, 0, nullptr));
    writer->note_failure(group, "broken");
    writer->enter_section("checkpoint");
    writer->leave_section();
    writer->set_state(group, GroupState::closed);
    syscall(SYS_exit_group, 0);  // Not _exit(): AddressSanitizer's queries the stack first.
    return 1;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(ring->groups[0].completed, 2 * kRecords);
}

#endif  // WITH_THREAD_SANITIZER

}  // namespace
}  // namespace muster::ring
