// The ownership of a ring: one process at a time writes it; after its end the next one may.
//
// Head::owner is taken by compare-exchange from 0, or from a process that has ended, with
// kAttaching until this process's start time is stored: without that, a third process would compare
// the new pid with the old start time. `generation` moves before anything is cleared and `attached`
// follows at the end: a reader that finds them equal before and after has read one owner's data.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/ring/ring_layout.h"

namespace muster::ring {

// Takes and clears the ring for this process and wakes the waiters on Head::futex. Returns false
// and `why` if another process, or this one, owns it.
bool take_ring(Ring& ring, Source source, bool tsc, std::string& why);

// Returns true, and sets `tsc` to the ring's clock, if this process owns the ring by another
// library beside which `source` may record: NCCL's plugin and Python's hook see different calls.
bool share_ring(const Ring& ring, Source source, bool& tsc);

// True if the ring has an owner that has not ended, in whatever process or library.
bool has_owner(std::string_view record_fd);

// Wakes those that wait until something is written into the ring (Head::futex).
void wake_readers(Head& head);

// Gives up owning the ring, which stays as it is. REQUIRES: this process owns it.
void leave_ring(Ring& ring);

}  // namespace muster::ring
