// Who is late: after a collective's time-out this rank asks the member that it waited for which
// operation that one is in, and whom it waits for itself, and goes on along that chain. Who is not
// in the operation, or does not answer, is the one that everybody waits for; without asking, most
// ranks would name a neighbour that is as stuck as they are.
//
// Blocks the caller for a quarter of a second at most, after its deadline.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "worker_lib/backends/cpu/hierarchy_layout.h"
#include "worker_lib/backends/cpu/links.h"
#include "worker_lib/backends/cpu/tcp_door.h"
#include "worker_lib/backends/cpu/tcp_reception.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"

namespace muster::worker {

struct Inquiry {
  const Members& members;
  const NodeLayout& layout;
  const std::vector<Door>& doors;
  uint64_t sequence = 0;          // Of the operation that timed out,
  OpKind kind = OpKind::barrier;  // and which it is.
  std::vector<int> suspects;      // Group ranks that this one waited for.
  CallPurpose purpose = CallPurpose::itself;
  std::chrono::milliseconds limit{0};  // For messages.
};

// A member that has not come to the operation, or came to another one instead.
struct Absentee {
  int rank = -1;
  bool answers = false;  // Its process lives and says where it is:
  uint64_t state = 0;    // see Whereabouts; only where it answers.
};

// Ascending; empty: all who were asked are in it.
std::vector<Absentee> find_absentees(const Inquiry& inquiry, Deadline until);

// "rank 2 (node7, pid 4711) has not called it within 2 s (its last: all_reduce 16)", a time-out; or
// a mismatch, where somebody called something else.
Failure absentees_failure(const Inquiry& inquiry, const std::vector<Absentee>& absentees);

}  // namespace muster::worker
