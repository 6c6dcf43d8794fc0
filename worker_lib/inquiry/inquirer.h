// Asks the ranks of a job who keeps a call of this one, until it is known or the time for it is
// over (inquiry.h decides). Blocks the caller for kInquiryLimit at most, after its deadline; twice
// as long where a process that the kernel calls running is slow to answer: a busy machine is no
// reason to blame it.
#pragma once

#include <chrono>
#include <functional>

#include "worker_lib/failure.h"
#include "worker_lib/inquiry/inquiry.h"
#include "worker_lib/members.h"
#include "worker_lib/watch/watch.h"

namespace muster::worker {

inline constexpr std::chrono::milliseconds kInquiryLimit{400};

struct InquirySetting {
  const Members& world;  // By rank of the job.
  Watch& watch;
  std::function<Whereabouts()> own;
  // Whether nobody needs to know any more, because the group has failed meanwhile.
  std::function<bool()> over;
};

// `suspected` is a time-out or a mismatch; the same with who is to blame, as far as that can be
// found out.
Failure find_out(const Failure& suspected, const InquiryQuestion& question,
                 const InquirySetting& setting);

}  // namespace muster::worker
