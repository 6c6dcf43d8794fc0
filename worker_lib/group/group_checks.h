// What is refused before anything is sent: one table says what each collective takes on which rank,
// and one function holds a call against it. Pure.
//
// A refusal is a text without the operation's name in front ("out has 5 elements where in has 4").
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "muster/types.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// A collective as it was called: the public function's arguments.
struct CollectiveCall {
  OpKind kind = OpKind::barrier;
  ConstBuffer in = {};
  Buffer out = {};  // Of a broadcast: the same as `in`.
  int root = 0;
  ReduceOp reduce = ReduceOp::sum;
  bool is_v = false;
  std::span<const size_t> send_counts = {};  // scatter, reduce_scatter, all_to_all
  std::span<const size_t> recv_counts = {};  // gather, all_gather, all_to_all
  const char* name = nullptr;                // For messages, instead of the kind's name.
  // Part of a composed operation of the library: host memory is welcome in every group.
  bool is_service = false;
  CallPurpose purpose = CallPurpose::itself;  // Of such a part.
};

inline const char* name_of(const CollectiveCall& call) {
  if (call.purpose != CallPurpose::itself) return name_of(call.purpose);
  return call.name != nullptr ? call.name : name_of(call.kind);
}

// Who calls: what the checks need to know of a group.
struct GroupShape {
  int size = 1;
  int me = 0;
};

// Sets `operation`, all but its sequence and stream, where the call is sound; else `why`, which is
// empty before. (In the way of every call: nothing is allocated where all is well.)
bool check_collective(const CollectiveCall& call, const GroupShape& shape, Operation& operation,
                      std::string& why);

bool check_transfer(const Transfer& transfer, const GroupShape& shape, std::string& why);

// "root 7 is not in the group, whose ranks are 0 to 3"; empty where it is.
std::string check_rank(const char* role, int rank, int size);

}  // namespace muster::worker
