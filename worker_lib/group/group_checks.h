// Checks of a call's arguments before anything is sent: a table says what each collective takes on
// which rank, and one function compares a call with it. Pure.
//
// A refusal does not name the operation ("out has 5 elements where in has 4").
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "muster/types.h"
#include "worker_lib/operation.h"

namespace muster::worker {

struct CollectiveCall {
  OpKind kind = OpKind::barrier;
  ConstBuffer in = {};
  Buffer out = {};  // Equal to `in` for a broadcast.
  int root = 0;
  ReduceOp reduce = ReduceOp::sum;
  bool is_v = false;
  std::span<const size_t> send_counts = {};  // scatter, reduce_scatter, all_to_all
  std::span<const size_t> recv_counts = {};  // gather, all_gather, all_to_all
  const char* name = nullptr;                // Replaces the kind's name in messages.
  // True for a step of a composite operation: every group accepts host memory for it.
  bool is_service = false;
  CallPurpose purpose = CallPurpose::itself;  // The composite operation's.
};

inline const char* name_of(const CollectiveCall& call) {
  if (call.purpose != CallPurpose::itself) return name_of(call.purpose);
  return call.name != nullptr ? call.name : name_of(call.kind);
}

// Facts of the group and the calling rank that the checks need.
struct GroupShape {
  int size = 1;
  int me = 0;
};

// Sets all of `operation` but sequence and stream if the call is valid, else `why`. REQUIRES: `why`
// is empty. Runs in every call: a valid one without counts allocates nothing.
bool check_collective(const CollectiveCall& call, const GroupShape& shape, Operation& operation,
                      std::string& why);

bool check_transfer(const Transfer& transfer, const GroupShape& shape, std::string& why);

// "root 7 is not in the group, whose ranks are 0 to 3"; empty if it is in the group.
std::string check_rank(const char* role, int rank, int size);

}  // namespace muster::worker
