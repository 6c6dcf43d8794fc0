// What a rank calls, so far as all members have to call the same: packed, for comparing.
// Plain values; shm_call.h says how they are packed and what they mean in words.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster::worker {

// Fields that a kind of call has no use for are 0.
struct CallSignature {
  // Of a CallWord: for messages only.
  static constexpr uint64_t kHadCounts = uint64_t{0x8} << 24;

  uint64_t word = 0;
  uint64_t count = 0;
  uint64_t counts_hash = 0;

  friend bool operator==(const CallSignature& a, const CallSignature& b) {
    return ((a.word ^ b.word) & ~kHadCounts) == 0 && a.count == b.count &&
           a.counts_hash == b.counts_hash;
  }
};

// One of the last calls in a lane.
struct NumberedCall {
  uint64_t number = 0;
  CallSignature signature;
  friend bool operator==(const NumberedCall&, const NumberedCall&) = default;
};

// So many are known: a rank that another one waits for is seldom further ahead.
inline constexpr size_t kCallsKept = 8;

}  // namespace muster::worker
