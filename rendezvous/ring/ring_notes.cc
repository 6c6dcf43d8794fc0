// The RingWriter's groups, sections and failures.
#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "rendezvous/base/text.h"
#include "rendezvous/ring/departure.h"
#include "rendezvous/ring/failure_record.h"
#include "rendezvous/ring/ring_clock.h"
#include "rendezvous/ring/ring_writer.h"

namespace muster::ring {
namespace {

constexpr uint64_t kGenerations = 511;  // Counted from 1; 0: the entry was never used.

uint64_t state_word(uint64_t generation, GroupState state) {
  return generation << 8 | static_cast<uint64_t>(state);
}

GroupState state_of(uint64_t word) {
  return static_cast<GroupState>(word & 0xff);
}

// Cuts the text at a character boundary so that a zero follows it.
template <size_t n>
void put_text(Word (&words)[n], std::string_view text) {
  const std::string_view kept = utf8_prefix(text, n * sizeof(Word) - 1);
  for (size_t i = 0; i < n; ++i) {
    const std::string_view part = kept.substr(std::min(i * sizeof(Word), kept.size()));
    uint64_t word = 0;
    if (!part.empty()) std::memcpy(&word, part.data(), std::min(part.size(), sizeof word));
    words[i].store(word, kRelaxed);
  }
}

void put_facts(Group& group, const GroupFacts& facts, uint64_t now) {
  group.size.store(static_cast<uint64_t>(facts.size), kRelaxed);
  group.own_rank.store(static_cast<uint64_t>(facts.own_rank), kRelaxed);
  group.flags.store(
      (facts.completion_is_late ? kCompletionIsLate : 0) | (facts.is_on_device ? kIsOnDevice : 0),
      kRelaxed);
  for (Word* const word : {&group.called, &group.launched, &group.started, &group.completed,
                           &group.dropped, &group.running_hash})
    word->store(0, kRelaxed);
  for (Word* const word : {&group.state_ticks, &group.called_ticks, &group.completed_ticks})
    word->store(now, kRelaxed);
  for (Word& ordinal : group.hash_ordinal)
    ordinal.store(0, kRelaxed);
  put_text(group.id, facts.id);
  put_text(group.name, facts.name);
  put_text(group.ranks, facts.ranks.size() < sizeof(Text) ? facts.ranks : std::string_view());
}

}  // namespace

int32_t RingWriter::open_group(const GroupFacts& facts) {
  if (!is_attached()) return -1;
  const int32_t handle = take_group();
  if (handle < 0) {
    ring_->head.without_group.fetch_add(1, kRelaxed);
    return -1;
  }
  const auto index = static_cast<size_t>(handle) % kGroups;
  Group& group = ring_->groups[index];
  release_fence();  // Readers of what follows see the new generation.
  put_facts(group, facts, ticks(tsc_));
  group.state.store(state_word(static_cast<uint64_t>(handle) / kGroups, GroupState::forming),
                    kRelease);
  return handle;
}

// Takes an entry that was never used, else that of the group closed first, and returns its handle.
// The entry has its new generation and is `unused` until its state is set.
int32_t RingWriter::take_group() {
  for (;;) {
    size_t best = kGroups;
    uint64_t best_word = 0;
    uint64_t closed_first = UINT64_MAX;
    for (size_t i = 0; i < kGroups; ++i) {
      const uint64_t word = ring_->groups[i].state.load(kAcquire);
      if (word != 0 && state_of(word) != GroupState::closed) continue;
      const uint64_t closed = word == 0 ? 0 : ring_->groups[i].state_ticks.load(kRelaxed);
      if (closed >= closed_first) continue;
      closed_first = closed;
      best = i;
      best_word = word;
    }
    if (best == kGroups) return -1;
    const uint64_t before = best_word >> 8;
    const uint64_t generation = before % kGenerations + 1;
    if (!ring_->groups[best].state.compare_exchange_strong(
            best_word, state_word(generation, GroupState::unused), std::memory_order_acq_rel))
      continue;
    if (before != 0) free_counts(before * kGroups + best);
    return static_cast<int32_t>(generation * kGroups + best);
  }
}

// Frees the counts of a group whose entry is reused.
void RingWriter::free_counts(uint64_t group) {
  for (PeerCount& count : ring_->peers) {
    const uint64_t key = count.key.load(kRelaxed);
    if (key == 0 || (key >> 32 & 0xffff) != group) continue;
    // Each store releases the one before: RingReader's read_messages() loads `completed` before
    // `called`, and a `completed` of 0 beside the old `called` would be messages in flight.
    for (Word* const word : {&count.called, &count.completed, &count.called_ticks})
      word->store(0, kRelease);
    count.key.store(0, kRelease);
  }
}

void RingWriter::set_state(int32_t group, GroupState state) {
  Group* const entry = find(group);
  if (entry == nullptr) return;
  const auto generation = static_cast<uint64_t>(group) / kGroups;
  entry->state_ticks.store(ticks(tsc_), kRelaxed);
  uint64_t word = entry->state.load(kRelaxed);
  while (word >> 8 == generation &&
         !entry->state.compare_exchange_weak(word, state_word(generation, state), kRelease)) {
  }
}

void RingWriter::set_completion_unknown(int32_t group, bool unknown) {
  Group* const entry = find(group);
  if (entry == nullptr) return;
  const uint64_t rest = entry->flags.load(kRelaxed) & ~kCompletionIsUnknown;
  entry->flags.store(rest | (unknown ? kCompletionIsUnknown : 0), kRelease);
}

void RingWriter::set_calls_unknown(int32_t group) {
  if (Group* const entry = find(group)) entry->flags.fetch_or(kCallsAreUnknown, kRelease);
}

uint64_t RingWriter::now() const {
  return ticks(tsc_);
}

void RingWriter::looked(uint64_t began) {
  if (is_attached()) ring_->head.looked_ticks.store(began, kRelease);
}

// The text is written after the entry is taken, so a reader may find the hash without a text.
const void* RingWriter::name_site(std::string_view text) {
  if (!is_attached()) return nullptr;
  const auto* const key = reinterpret_cast<const void*>(std::hash<std::string_view>()(text) | 1);
  const size_t at = find_site(key);
  if (at == kNoSite) return nullptr;
  put_text(ring_->sites[at].text, text);
  return key;
}

void RingWriter::note_failure(int32_t group, std::string_view message) {
  if (!is_attached() || has_failed_.exchange(true)) return;
  Notes& notes = ring_->notes;
  notes.failed_group.store(find(group) == nullptr ? 0 : static_cast<uint64_t>(group), kRelaxed);
  put_text(notes.failure, message);
  notes.failed_ticks.store(ticks(tsc_), kRelease);
}

void RingWriter::enter_section(std::string_view name) {
  if (!is_attached()) return;
  Notes& notes = ring_->notes;
  const uint64_t depth = notes.depth.load(kRelaxed);
  if (depth < kSections) {
    notes.section_ticks[depth].store(0, kRelaxed);
    release_fence();
    put_text(notes.sections[depth], name);
    notes.section_ticks[depth].store(ticks(tsc_), kRelease);
  }
  notes.depth.store(depth + 1, kRelease);
}

void RingWriter::leave_section() {
  if (!is_attached()) return;
  const uint64_t depth = ring_->notes.depth.load(kRelaxed);
  if (depth > 0) ring_->notes.depth.store(depth - 1, kRelease);
}

}  // namespace muster::ring

namespace muster {

void put_report(ring::Report& report, const FailureRecord& record) {
  take_back_report(report);
  report.what.store(static_cast<uint64_t>(record.code) |
                        static_cast<uint64_t>(std::max(record.rank, -1) + 1) << 32,
                    ring::kRelaxed);
  std::vector<int> origin = record.origin;
  if (origin.size() > 2 * std::size(report.origin)) {
    origin.resize(2 * std::size(report.origin));
    // The writer's own rank must not be lost.
    if (record.rank > origin.back() && std::ranges::count(record.origin, record.rank) > 0)
      origin.back() = record.rank;
  }
  for (size_t i = 0; i < std::size(report.origin); ++i) {
    uint64_t ranks = 0;
    for (size_t at = 2 * i; at < std::min(2 * i + 2, origin.size()); ++at)
      ranks |= static_cast<uint64_t>(std::max(origin[at], -1) + 1) << (at % 2 * 32);
    report.origin[i].store(ranks, ring::kRelaxed);
  }
  ring::put_text(report.message, record.message);
  report.time_ns.store(static_cast<uint64_t>(std::max<int64_t>(record.time_ns, 1)), ring::kRelease);
}

void take_back_report(ring::Report& report) {
  report.time_ns.store(0, ring::kRelaxed);
  ring::release_fence();
}

void put_departure(ring::DepartureNote& note, const Departure& departure) {
  take_back_departure(note);
  note.what.store(static_cast<uint64_t>(departure.kind) | static_cast<uint64_t>(departure.pid)
                                                              << 32,
                  ring::kRelaxed);
  ring::put_text(note.error, departure.error);
  ring::put_text(note.site, departure.site);
  ring::put_text(note.threads, departure.threads);
  note.time_ns.store(static_cast<uint64_t>(std::max<int64_t>(departure.time_ns, 1)),
                     ring::kRelease);
}

void take_back_departure(ring::DepartureNote& note) {
  note.time_ns.store(0, ring::kRelaxed);
  ring::release_fence();
}

}  // namespace muster
