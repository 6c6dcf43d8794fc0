#include "rendezvous/ring/ring_writer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/ring/record_fd.h"
#include "rendezvous/ring/ring_owner.h"

namespace muster::ring {
namespace {

constexpr size_t kProbes = 16;  // Probes of a hash table before it counts as full.
constexpr uint64_t kIsPeerCount = uint64_t{1} << 63;
constexpr int kGroupOfKey = 32;

// Fibonacci hashing (Knuth 6.4): uses upper bits of the product. `size`: a power of two.
size_t first_probe(uint64_t key, size_t size) {
  return static_cast<size_t>((key * 0x9e3779b97f4a7c15ULL) >> 40) % size;
}

constexpr int kLapShift = 48;

// The value of Record::started and Record::completed.
uint64_t lap_and_ticks(const Pending& pending, uint64_t now) {
  const auto since = static_cast<int64_t>(now - pending.called_ticks);
  const auto kept = std::clamp<int64_t>(since, 1, (int64_t{1} << kLapShift) - 1);
  return (pending.record / kRecords) << kLapShift | static_cast<uint64_t>(kept);
}

uint64_t what_of(int32_t group, const Call& call, size_t site) {
  const uint64_t flags = (call.is_v ? kIsV : 0) | (call.is_synchronous ? kIsSynchronous : 0);
  return static_cast<uint64_t>(group) | static_cast<uint64_t>(call.kind) << 16 |
         static_cast<uint64_t>(call.type) << 24 | static_cast<uint64_t>(call.reduction) << 32 |
         flags << 40 | static_cast<uint64_t>(site) << 48;
}

// 0: none or any.
uint32_t root_plus_1(const Call& call) {
  return static_cast<uint32_t>(call.root) + 1;
}

uint64_t peer_of(const Call& call, int tag) {
  return root_plus_1(call) | static_cast<uint64_t>(static_cast<uint32_t>(tag)) << 32;
}

// Raises `counter` to `ordinal`. One thread at a time.
void move_up(Word& counter, uint64_t ordinal) {
  if (counter.load(kRelaxed) < ordinal) counter.store(ordinal, kRelease);
}

}  // namespace

RingWriter::RingWriter(Ring* ring, ForkMark mark, bool tsc, bool is_shared)
    : ring_(ring), mark_(std::move(mark)), tsc_(tsc), is_shared_(is_shared) {}

std::unique_ptr<RingWriter> RingWriter::attach(std::string_view record_fd, Source source,
                                               std::string& why, bool tsc) {
  const auto parsed = parse_record_fd(record_fd);
  if (!parsed) {
    why = fmt::format("'{}' is no descriptor and nonce, as in 100:1f00c3a29b7e4d51", record_fd);
    return nullptr;
  }
  std::optional<ForkMark> mark = ForkMark::make();
  if (!mark) {
    why = "no memory for a page that forked children find empty";
    return nullptr;
  }
  Ring* const ring = map_ring(*parsed, /*writable=*/true, why);
  if (ring == nullptr) return nullptr;
  const bool is_shared = share_ring(*ring, source, tsc);
  if (is_shared || take_ring(*ring, source, tsc, why))
    return std::unique_ptr<RingWriter>(new RingWriter(ring, std::move(*mark), tsc, is_shared));
  unmap_ring(ring);
  return nullptr;
}

RingWriter::~RingWriter() {
  if (is_attached() && !is_shared_) leave_ring(*ring_);
  unmap_ring(ring_);
}

Group* RingWriter::find(int32_t group) const {
  if (group < 0 || !is_attached()) return nullptr;
  Group& entry = ring_->groups[static_cast<size_t>(group) % kGroups];
  const bool is_same = entry.state.load(kRelaxed) >> 8 == static_cast<uint64_t>(group) / kGroups;
  return is_same ? &entry : nullptr;
}

// ---- collectives

Pending RingWriter::called(int32_t group, uint64_t ordinal, const Call& call, const void* site) {
  Pending pending;  // Returned on every path, so that it is never copied.
  Group* const entry = find(group);
  if (entry == nullptr) return pending;
  pending.ordinal = ordinal;
  pending.called_ticks = ticks(tsc_);
  pending.hash_before = entry->running_hash.load(kRelaxed);
  pending.group = group;
  const uint64_t hash = mixed_in(pending.hash_before, call);
  entry->running_hash.store(hash, kRelaxed);
  if (ordinal % kHashEvery == 0) keep_hash(*entry, ordinal, hash);
  entry->called_ticks.store(pending.called_ticks, kRelaxed);
  entry->called.store(ordinal, kRelease);  // Its readers see a time that is not too early.
  pending.record = write_record(*entry, pending, call, 0, site);
  return pending;
}

// Readers accept a hash if its ordinal is the same before and after.
void RingWriter::keep_hash(Group& group, uint64_t ordinal, uint64_t hash) {
  const size_t at = ordinal / kHashEvery % kHashes;
  group.hash_ordinal[at].store(0, kRelaxed);
  release_fence();
  group.hash[at].store(hash, kRelaxed);
  group.hash_ordinal[at].store(ordinal, kRelease);
}

void RingWriter::launched(const Pending& pending) {
  if (Group* const group = find(pending.group)) move_up(group->launched, pending.ordinal);
}

void RingWriter::started(const Pending& pending) {
  Group* const group = find(pending.group);
  if (group == nullptr) return;
  move_up(group->started, pending.ordinal);
  if (Record* const record = record_of(pending))
    record->started.store(lap_and_ticks(pending, ticks(tsc_)), kRelease);
}

void RingWriter::completed(const Pending& pending) {
  const uint64_t now = count_completed(pending);
  if (now == 0) return;
  Record* const record = record_of(pending);
  if (record == nullptr) return;
  const uint64_t word = lap_and_ticks(pending, now);
  const uint64_t told = record->completed.load(kRelaxed);
  // Written once; replaces what a late completion of the slot's former record has left.
  if (told == 0 || told >> kLapShift != word >> kLapShift) record->completed.store(word, kRelease);
}

void RingWriter::failed(const Pending& pending) {
  const uint64_t now = count_completed(pending);
  if (now != 0) flag_record(pending, kFailed, now);
}

// Counts a completion and returns its time; 0 if the group is gone or not recorded.
uint64_t RingWriter::count_completed(const Pending& pending) {
  Group* const group = find(pending.group);
  if (group == nullptr) return 0;
  const uint64_t now = ticks(tsc_);
  if (PeerCount* const count = count_of(pending)) {
    count->completed.fetch_add(1, kRelease);
  } else if (pending.ordinal > group->completed.load(kRelaxed)) {
    group->completed_ticks.store(now, kRelaxed);
    group->completed.store(pending.ordinal, kRelease);
  }
  return now;
}

void RingWriter::withdrawn(const Pending& pending) {
  Group* const group = find(pending.group);
  if (group == nullptr) return;
  flag_record(pending, kWithdrawn, 0);
  if (PeerCount* const count = count_of(pending)) {
    count->called.fetch_sub(1, kRelease);
  } else if (pending.ordinal != 0 && group->called.load(kRelaxed) == pending.ordinal) {
    if (pending.ordinal % kHashEvery == 0)
      group->hash_ordinal[pending.ordinal / kHashEvery % kHashes].store(0, kRelaxed);
    group->running_hash.store(pending.hash_before, kRelaxed);
    group->called.store(pending.ordinal - 1, kRelease);
  }
}

// ---- messages

Pending RingWriter::message_called(int32_t group, const Call& call, int tag, const void* site) {
  Pending pending;
  Group* const entry = find(group);
  if (entry == nullptr) return pending;
  pending.called_ticks = ticks(tsc_);
  pending.group = group;
  const uint64_t is_recv = call.kind == CallKind::recv ? uint64_t{1} << 62 : 0;
  pending.peer_count = find_count(kIsPeerCount | is_recv |
                                  static_cast<uint64_t>(group) << kGroupOfKey | root_plus_1(call));
  if (pending.peer_count >= 0) {
    PeerCount& count = ring_->peers[static_cast<size_t>(pending.peer_count)];
    count.called_ticks.store(pending.called_ticks, kRelaxed);
    pending.ordinal = count.called.fetch_add(1, kRelease) + 1;
  } else {  // Uncounted: the peer would seem to wait for it for ever.
    entry->dropped.fetch_add(1, kRelaxed);
    set_calls_unknown(group);
  }
  pending.record = write_record(*entry, pending, call, tag, site);
  return pending;
}

// Finds or takes the entry of `key`; -1 if none is free. Only open_group() frees entries, so two
// threads' first messages to one peer get the same entry.
int32_t RingWriter::find_count(uint64_t key) {
  const size_t first = first_probe(key, kPeerCounts);
  for (size_t tries = 0; tries < kProbes; ++tries) {
    int32_t free = -1;
    for (size_t probe = 0; probe < kProbes; ++probe) {
      const size_t at = (first + probe) % kPeerCounts;
      const uint64_t seen = ring_->peers[at].key.load(kAcquire);
      if (seen == key) return static_cast<int32_t>(at);
      if (seen == 0 && free < 0) free = static_cast<int32_t>(at);
    }
    if (free < 0) return -1;
    uint64_t seen = 0;
    if (ring_->peers[static_cast<size_t>(free)].key.compare_exchange_strong(seen, key, kAcquire))
      return free;
  }
  return -1;
}

// Returns nullptr for a collective and an uncounted message. REQUIRES: its group is not gone.
PeerCount* RingWriter::count_of(const Pending& pending) const {
  return pending.peer_count < 0 ? nullptr : &ring_->peers[static_cast<size_t>(pending.peer_count)];
}

// ---- records

// Returns the record's number. Two writers may want one slot, a lap apart: the one that finds it
// being written, or written for a later record, gives up.
uint64_t RingWriter::write_record(Group& group, const Pending& pending, const Call& call, int tag,
                                  const void* site) {
  const size_t site_index = find_site(site);
  const uint64_t number = ring_->head.next_record.fetch_add(1, kRelaxed);
  Record& record = ring_->records[number % kRecords];
  uint64_t seen = record.sequence.load(kRelaxed);
  if (seen % 2 != 0 || seen > 2 * number ||
      !record.sequence.compare_exchange_strong(seen, 2 * number + 1, kAcquire, kRelaxed)) {
    ring_->head.dropped.fetch_add(1, kRelaxed);
    group.dropped.fetch_add(1, kRelaxed);
    return Pending::kNoRecord;
  }
  // A reader that sees one of the words below then sees the odd sequence (Boehm, "Can seqlocks get
  // along with programming language memory models?", 2012).
  release_fence();
  record.what.store(what_of(pending.group, call, site_index), kRelaxed);
  record.peer.store(peer_of(call, tag), kRelaxed);
  record.ordinal.store(pending.ordinal, kRelaxed);
  record.count.store(call.count, kRelaxed);
  record.called_ticks.store(pending.called_ticks, kRelaxed);
  record.started.store(0, kRelaxed);
  record.completed.store(0, kRelaxed);
  record.sequence.store(2 * number + 2, kRelease);
  return number;
}

// Returns nullptr if there is none, or another call has taken its slot.
Record* RingWriter::record_of(const Pending& pending) const {
  if (pending.record == Pending::kNoRecord) return nullptr;
  Record& record = ring_->records[pending.record % kRecords];
  return record.sequence.load(kRelaxed) == 2 * pending.record + 2 ? &record : nullptr;
}

// Locks the slot again, since a flag has no lap that names its record, although the sequence is the
// same afterwards: a reader that finds the same flags before and after has read one state, and one
// that finds the flag finds the end. `completed`: 0 if it is not.
void RingWriter::flag_record(const Pending& pending, uint64_t flag, uint64_t completed) {
  Record* const record = record_of(pending);
  uint64_t whole = 2 * pending.record + 2;
  if (record == nullptr || !record->sequence.compare_exchange_strong(whole, whole - 1, kAcquire))
    return;
  release_fence();
  if (completed != 0) record->completed.store(lap_and_ticks(pending, completed), kRelaxed);
  record->what.store(record->what.load(kRelaxed) | flag << 40, kRelease);
  record->sequence.store(2 * pending.record + 2, kRelease);
}

size_t RingWriter::find_site(const void* site) {
  const auto address = reinterpret_cast<uintptr_t>(site);
  if (address == 0) return kNoSite;
  const size_t first = first_probe(address, kSites);
  for (size_t probe = 0; probe < kProbes; ++probe) {
    const size_t at = (first + probe) % kSites;
    Word& taken = ring_->sites[at].address;
    uint64_t seen = taken.load(kRelaxed);
    if (seen == 0 && taken.compare_exchange_strong(seen, address, kRelaxed)) return at;
    if (seen == address) return at;
  }
  return kNoSite;
}

}  // namespace muster::ring
