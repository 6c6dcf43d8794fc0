#include "worker_lib/backends/cpu/shm_progress.h"

#include <algorithm>
#include <cstring>
#include <ranges>

#include "worker_lib/backends/late_transfer.h"
#include "worker_lib/time_text.h"

namespace muster::worker {
namespace {

CallSignature signature_in(const CallLine& line) {
  return {line.call & ~CallSignature::kSource, line.count, line.counts_hash};
}

}  // namespace

// `ready` is called often, so it resumes where it stopped: a rank that got there stays there.
template <typename Reached>
bool ShmCall::wait_for(int first, int last, const Reached& reached) {
  int next = first;
  const auto ready = [&] {
    while (next < last && reached(next))
      ++next;
    return next == last;
  };
  const Waited how =
      wait_until(segment.collective_bell(), segment.abort_word(), patience, deadline_, ready);
  if (how == Waited::ready) [[likely]] {
    return true;
  }
  std::vector<int> missing;
  for (int rank = first; rank < last; ++rank) {
    if (!reached(rank)) missing.push_back(rank);
  }
  return give_up(how, missing);
}

bool ShmCall::give_up(Waited how, const std::vector<int>& missing) {
  if (how == Waited::timed_out && missing.empty()) return true;  // All arrived just now.
  failure_ = how == Waited::timed_out ? absent_members(local, missing, within(operation.limit))
                                      : segment.failure();
  failure_->is_suspicion = how == Waited::timed_out;
  return false;
}

bool ShmCall::fail(Failure failure) {
  segment.abort(failure);
  failure_ = segment.failure();
  if (!failure_) failure_ = std::move(failure);
  return false;
}

bool ShmCall::interrupted() {
  if (segment.abort_word().load(std::memory_order_relaxed) == 0) return false;
  failure_ = segment.failure();
  return true;
}

bool ShmCall::wait_for_slots() {
  return wait_for(0, ranks(), [&](int rank) {
    return rank == me() || segment.progress(rank).finished.load() >= last_staged;
  });
}

// The rank that stores its number last sees those of all others and wakes the sleeping ranks; a
// rank that does not see all need not wake any.
bool ShmCall::meet(DataSource source, uint64_t piece_bytes) {
  CallLine& mine = line(me());
  const CallSignature signature = signature_of(operation);
  CallWord word = CallWord::unpack(signature.word);
  word.source = source;
  mine.call = word.pack();
  mine.count = signature.count;
  mine.counts_hash = signature.counts_hash;
  mine.step_base = step_base;
  if (source == DataSource::chunks || source == DataSource::region) {
    std::memcpy(mine.inlined, &piece_bytes, sizeof piece_bytes);
  }
  mine.sequence.store(sequence);
  const auto has_come = [&](int rank) { return line(rank).sequence.load() >= sequence; };
  int come = 0;
  while (come < ranks() && has_come(come))
    ++come;
  if (come == ranks()) {
    ring(segment.collective_bell());
  } else if (!wait_for(come, ranks(), has_come)) {
    return false;
  }
  return compare_lines();
}

bool ShmCall::compare_lines() {
  const CallSignature mine = signature_in(line(me()));
  const auto is_mine = [&](int rank) { return signature_in(line(rank)) == mine; };
  if (std::ranges::all_of(std::views::iota(0, ranks()), is_mine)) return true;
  std::vector<CallSignature> calls;
  for (int rank = 0; rank < ranks(); ++rank)
    calls.push_back(signature_in(line(rank)));
  failure_ = find_mismatch(calls, local);
  return false;
}

uint64_t ShmCall::piece_bytes_of(int rank) const {
  uint64_t piece = 0;
  std::memcpy(&piece, line(rank).inlined, sizeof piece);
  return piece;
}

template <std::atomic<uint64_t> ProgressLine::* count>
bool ShmCall::wait_for_count(int rank, uint64_t chunks) {
  const uint64_t until = line(rank).step_base + chunks;
  return wait_for(rank, rank + 1,
                  [&](int peer) { return (segment.progress(peer).*count).load() >= until; });
}

template <std::atomic<uint64_t> ProgressLine::* count>
bool ShmCall::wait_for_all_counts(uint64_t chunks) {
  return wait_for(0, ranks(), [&](int rank) {
    return (segment.progress(rank).*count).load() >= line(rank).step_base + chunks;
  });
}

bool ShmCall::wait_produced(int rank, uint64_t chunks) {
  return wait_for_count<&ProgressLine::produced>(rank, chunks);
}

bool ShmCall::wait_consumed(int rank, uint64_t chunks) {
  return wait_for_count<&ProgressLine::consumed>(rank, chunks);
}

bool ShmCall::wait_all_produced(uint64_t chunks) {
  return wait_for_all_counts<&ProgressLine::produced>(chunks);
}

bool ShmCall::wait_all_consumed(uint64_t chunks) {
  return wait_for_all_counts<&ProgressLine::consumed>(chunks);
}

}  // namespace muster::worker
