// What a rank calls, so far as all members have to call the same: packed, for comparing.
// Plain values; shm_call.h says how they are packed and what they mean in words.
#pragma once

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

}  // namespace muster::worker
