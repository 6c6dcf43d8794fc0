// Who writes a ring: one process at a time, the first that asks, and after its end the next one.
//
// Head::owner is taken by compare-exchange from 0, or from a process that has ended, with
// kAttaching until this process's start time stands beside it: without that, a third one would
// compare the pid with the start time of the owner before. A generation begins before anything of
// the last one is cleared, and `attached` follows it at the end, so a reader that finds both equal,
// before and after it read, has read what one owner wrote.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/ring/ring_layout.h"

namespace muster::ring {

// Empties the ring for this process and wakes who waits for Head::futex. False and `why` if another
// process, or this one, has it.
bool take_ring(Ring& ring, Source source, bool tsc, std::string& why);

// Whether this process has it already, by a library beside which `source` records: NCCL's plugin
// and Python's hook, which see different calls. Then `tsc` becomes the clock of its times.
bool share_ring(const Ring& ring, Source source, bool& tsc);

// Whether another process, or another library in this one, records what this rank does.
bool has_owner(std::string_view record_fd);

// The ring stays as it is. REQUIRES: this process has it.
void leave_ring(Ring& ring);

}  // namespace muster::ring
