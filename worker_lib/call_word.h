// Packs calls into CallSignatures, compares the calls of all members, and puts them into words for
// messages. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// The parts of a call that must be equal on all members, packed for comparison: plain values.
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

// The place where other ranks read a rank's data. Part of its CallLine.
enum class DataSource : uint8_t {
  nowhere = 0,  // The rank sends nothing.
  small = 1,    // The rank's small data (or its line).
  chunks = 2,   // The rank's chunk slots, piece by piece; the first is there when the line is.
  region = 3,   // Memory from allocate_shared().
};

struct CallWord {
  OpKind kind = OpKind::barrier;
  DType dtype = DType::int8;
  ReduceOp reduce = ReduceOp::sum;
  DataSource source = DataSource::nowhere;
  bool is_v = false;
  bool had_counts = false;
  CallPurpose purpose = CallPurpose::itself;
  uint32_t root = 0;

  uint64_t pack() const;
  static CallWord unpack(uint64_t word);
};

CallSignature signature_of(const Operation& operation);

// "all_reduce (sum) of 8 float32", "broadcast of 1 int64 from rank 2 (node7, pid 4711)",
// "should_stop()".
std::string describe_call(const CallSignature& signature, const Members& local);

// Compares the members' calls, by rank. Blames those that differ from most, or all in a tie.
std::optional<Failure> find_mismatch(const std::vector<CallSignature>& calls,
                                     const Members& members);

}  // namespace muster::worker
