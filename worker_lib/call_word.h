// How a call is packed into a CallSignature, how the calls of all members are compared, and what
// they are in words. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker_lib/call_signature.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// Where a rank's data is, for those who read it. In its CallLine.
enum class DataSource : uint8_t {
  nowhere = 0,  // It sends nothing.
  small = 1,    // In its small data (or in its line).
  chunks = 2,   // In its chunk slots, piece by piece; the first is there when the line is.
  region = 3,   // In memory of allocate_shared().
};

// What allocate_shared() meets as: no collective is called that.
inline constexpr OpKind kAllocation = OpKind::send;

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

// Compares what the members call, by rank. The failure names those that differ from most: all of
// them where nobody can tell which is right.
std::optional<Failure> find_mismatch(const std::vector<CallSignature>& calls,
                                     const Members& members);

}  // namespace muster::worker
