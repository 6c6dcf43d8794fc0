// Rings with arbitrary content, and rings that change while they are read.
#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/hang/records_text.h"
#include "agent/hang/ring_reader.h"
#include "rendezvous/base/prng.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/unit/agent/hang/read_steps.h"
#include "tests/unit/agent/hang/sound_records.h"
#include "tests/unit/rendezvous/ring/ring_harness.h"

namespace muster {
namespace {

using ring::CallKind;
using ring::GroupState;

constexpr size_t kWords = sizeof(ring::Ring) / sizeof(ring::Word);

// A ring and its reader.
struct SharedRing : ring::TestRing {
  ring::Word& word(size_t at) const { return reinterpret_cast<ring::Word*>(&**this)[at]; }

  const RingReader reader = RingReader::open({fd(), ring::kTestNonce}).value();
};

void fill(ring::RingWriter& writer) {
  for (int i = 0; i < 5; ++i) {
    const std::string name = "group " + std::to_string(i);
    const int32_t group =
        writer.open_group({.id = name, .name = name, .ranks = "0-7", .size = 8, .own_rank = i});
    writer.set_state(group, GroupState::ready);
    for (uint64_t ordinal = 1; ordinal <= 40; ++ordinal) {
      const ring::Call call{.kind = CallKind::broadcast, .root = 1, .count = ordinal};
      writer.completed(writer.called(group, ordinal, call, &writer));
      writer.message_called(group, {.kind = CallKind::send, .root = i}, 7, nullptr);
    }
    writer.enter_section(name);
  }
  writer.note_failure(128, "rank 2 is gone");
}

void check_all_that_is_read(const SharedRing& shared) {
  const std::optional<RecordedState> state = shared.reader.state();
  if (state) check_sound(*state, ring_now());
  for (const size_t most : {size_t{3}, 2 * ring::kRecords}) {
    const std::vector<RecordedCall> calls = shared.reader.calls(most);
    check_sound(calls, most, ring_now());
    RankRing ring{.rank = 1, .pid = 2, .state = state, .calls = calls, .why_none = {}};
    const RankRecords records = records_of(ring, ring_now(), 9);
    for (const bool details : {false, true}) {
      const std::string text = records_text({records}, details);
      EXPECT_LT(text.size(), 100'000u);
      EXPECT_EQ(std::ranges::count(text, '\n') > 1, details && state.has_value());
    }
  }
}

TEST(HostileRing, IsReadSoundlyIfItHoldsRandomWords) {
  SharedRing shared;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Prng prng(seed);
    const uint64_t bits = prng.below(64);  // Makes small numbers and indices likely.
    for (size_t i = 4; i < kWords; ++i)
      shared.word(i).store(prng.next() >> bits, std::memory_order_relaxed);
    shared->head.attached = shared->head.generation.load();
    check_all_that_is_read(shared);
  }
}

TEST(HostileRing, IsReadSoundlyIfSomeOfItsWordsAreRandom) {
  SharedRing shared;
  const auto writer = shared.attach();
  fill(*writer);
  std::vector<uint64_t> sound(kWords);
  for (size_t i = 0; i < kWords; ++i)
    sound[i] = shared.word(i);
  std::vector<size_t> used;
  for (size_t i = 4; i < kWords; ++i) {
    if (sound[i] != 0) used.push_back(i);
  }
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Prng prng(seed);
    std::vector<size_t> changed;
    for (uint64_t count = prng.below(60); count > 0; --count) {
      const size_t at =
          prng.chance(1, 8) ? 4 + prng.below(kWords - 4) : used[prng.below(used.size())];
      changed.push_back(at);
      shared.word(at) =
          prng.chance(1, 2) ? prng.next() >> prng.below(64) : sound[at] + prng.below(5);
    }
    check_all_that_is_read(shared);
    for (const size_t at : changed)
      shared.word(at) = sound[at];
  }
}

// Finds these words in the reader's mapping, which is the read-only one.
ReadPages pages_read(const SharedRing& shared, const void* first, size_t bytes) {
  const UniqueFd fd(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  const std::string maps = read_up_to(fd.get(), 1 << 20);
  const auto offset =
      static_cast<const std::byte*>(first) - reinterpret_cast<const std::byte*>(&*shared);
  for (const std::string_view line : split(maps, '\n')) {
    if (!contains(line, " r--s ") || !contains(line, "muster-ring")) continue;
    const auto begin = whole_number<uintptr_t>(line.substr(0, line.find('-')), 16);
    return {reinterpret_cast<std::byte*>(begin.value()) + offset, bytes};
  }
  return {};
}

class InterleavedRing : public testing::Test {
 protected:
  void SetUp() override {
    if (!kHasReadSteps) GTEST_SKIP() << "single steps need an x86-64 processor";
  }
  ReadPages head() const { return pages_read(shared_, &shared_->head, 4096); }
  ReadPages groups() const { return pages_read(shared_, &shared_->groups, 4096); }
  ReadPages records() const { return pages_read(shared_, &shared_->records, 4096); }

  SharedRing shared_;
  std::unique_ptr<ring::RingWriter> writer_ = shared_.attach();
  ring::Head& head_ = shared_->head;
  ring::Group& group_ = shared_->groups[0];
  ring::Record& record_ = shared_->records[0];
};

TEST_F(InterleavedRing, NeverMixesTwoCallsInARecord) {
  const auto record = [&](uint64_t n) {
    return std::vector<StoredWord>{{&record_.sequence, 2 * n + 1},
                                   {&record_.peer, n + 1},
                                   {&record_.ordinal, n + 1},
                                   {&record_.count, n + 1},
                                   {&record_.sequence, 2 * n + 2}};
  };
  // The reader looks for the first record, then for the second.
  for (const uint64_t next : {uint64_t{1}, ring::kRecords + 1}) {
    head_.next_record = next;
    size_t seen = 0;
    interleave(records(), record(0), record(ring::kRecords), [&] {
      for (const RecordedCall& call : shared_.reader.calls(1)) {
        ++seen;
        EXPECT_EQ(call.ordinal, next);
        EXPECT_EQ(call.call.count, next);
        EXPECT_EQ(call.call.root, static_cast<int32_t>(next) - 1);
      }
    });
    EXPECT_GT(seen, 0u);
  }
}

TEST_F(InterleavedRing, NeverMixesTwoGroups) {
  const auto group = [&](uint64_t generation, uint64_t calls) {
    return std::vector<StoredWord>{
        {&group_.state, generation << 8},    {&group_.size, generation},
        {&group_.own_rank, generation - 1},  {&group_.called, calls},
        {&group_.completed, calls},          {&group_.id[0], '0' + generation},
        {&group_.state, generation << 8 | 2}};
  };
  size_t seen = 0;
  interleave(groups(), group(7, 5), group(8, 0), [&] {
    const RecordedState state = shared_.reader.state().value();
    EXPECT_EQ(state.garbage, 0u);
    for (const RecordedGroup& found : state.groups) {
      ++seen;
      EXPECT_EQ(found.handle, ring::kGroups * static_cast<uint32_t>(found.size));
      EXPECT_EQ(found.own_rank + 1, found.size);
      EXPECT_EQ(found.id, std::to_string(found.size));
      EXPECT_EQ(found.called, found.size == 7 ? 5u : 0u);
    }
  });
  EXPECT_GT(seen, 0u);
}

TEST_F(InterleavedRing, ShowsEachHashWithItsOrdinalAndCountersInTheirOrder) {
  const auto calls = [&](uint64_t ordinal) {
    return std::vector<StoredWord>{{&group_.hash_ordinal[1], 0},       {&group_.hash[1], ordinal},
                                   {&group_.hash_ordinal[1], ordinal}, {&group_.called, ordinal},
                                   {&group_.launched, ordinal},        {&group_.started, ordinal},
                                   {&group_.completed, ordinal}};
  };
  writer_->open_group({.id = "a", .name = "a", .ranks = "0", .size = 1, .own_rank = 0});
  size_t seen = 0;
  interleave(groups(), calls(16), calls(144), [&] {
    const RecordedState state = shared_.reader.state().value();
    EXPECT_EQ(state.garbage, 0u);
    for (const RecordedHash& hash : state.groups.at(0).hashes) {
      ++seen;
      EXPECT_EQ(hash.hash, hash.ordinal);
    }
  });
  EXPECT_GT(seen, 0u);
}

// Each word names its owner.
TEST_F(InterleavedRing, NeverMixesTwoOwners) {
  const auto taken_by = [&](uint64_t owner) {
    return std::vector<StoredWord>{{&head_.generation, owner},
                                   {&record_.sequence, 0},
                                   {&head_.owner, owner},
                                   {&head_.dropped, owner},
                                   {&head_.next_record, 1},
                                   {&record_.ordinal, owner},
                                   {&record_.sequence, 2},
                                   {&shared_->notes.failed_group, owner},
                                   {&shared_->notes.failed_ticks, 1},
                                   {&head_.attached, owner}};
  };
  size_t seen = 0;
  interleave(head(), taken_by(7), taken_by(8), [&] {
    const auto state = shared_.reader.state();
    const auto calls = shared_.reader.calls(1);
    if (state) {
      ++seen;
      EXPECT_EQ(static_cast<uint64_t>(state->owner), state->generation);
      EXPECT_EQ(state->dropped, state->generation);
      EXPECT_EQ(state->failure.value().group, state->generation);
    }
  });
  EXPECT_GT(seen, 0u);
}

// A thread records faster than the reader reads.
TEST(ChangingRing, ShowsCallsAsTheyWereWritten) {
  const auto call_as_written = [](uint64_t ordinal) {
    return ring::Call{.kind = CallKind::broadcast,
                      .root = static_cast<int32_t>(ordinal % 1000),
                      .count = ordinal * 3};
  };
  SharedRing shared;
  const auto writer = shared.attach();
  const int32_t group = writer->open_group({.id = "a", .name = "a", .size = 1000, .own_rank = 0});
  std::atomic<bool> ends = false;
  std::thread writing([&] {
    for (uint64_t ordinal = 1; !ends; ++ordinal) {
      writer->completed(writer->called(group, ordinal, call_as_written(ordinal), nullptr));
      const ring::Call message{.kind = CallKind::send, .root = 1};
      writer->completed(writer->message_called(group, message, 0, nullptr));
    }
  });
  uint64_t seen = 0;
  for (int look = 0; look < 3000 || seen == 0; ++look) {
    const RecordedState state = shared.reader.state().value();
    EXPECT_EQ(state.garbage, 0u);
    check_sound(state, ring_now());
    uint64_t before = 0;
    for (const RecordedCall& call : shared.reader.calls(16)) {
      if (is_message(call.call.kind)) continue;
      EXPECT_GT(call.ordinal, before);
      before = call.ordinal;
      EXPECT_EQ(call.call, call_as_written(call.ordinal));
      EXPECT_GE(call.called, state.attached);
      ++seen;
    }
  }
  ends = true;
  writing.join();
}

}  // namespace
}  // namespace muster
