// The parts of a call that must be equal on all members, packed for comparison. Plain values;
// call_word.h packs them and puts them into words.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster::worker {

// Fields that a kind of call does not use are 0.
struct CallSignature {
  // Bits of a CallWord in which members may differ: where a rank's data is (masked out before the
  // word is compared) and whether the user called a _v form (used in messages only).
  static constexpr uint64_t kSource = uint64_t{0x3} << 24;
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

// Calls kept per lane: a rank that another one waits for is seldom further ahead.
inline constexpr size_t kCallsKept = 8;

}  // namespace muster::worker
