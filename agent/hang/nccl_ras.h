// What NCCL's RAS says of a job (a thread of each process; NCCL 2.28.7 and newer), read as a
// witness of a hang. It is for people only: it counts launches, not completions, and has called
// jobs well that hung for half an hour, so no verdict rests on it. All of it may be anybody's
// bytes. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace muster::hang {

struct RasWitness {
  // For people, cleaned: which processes do not answer, count as dead or have an asynchronous
  // error; empty: none.
  std::string line;
  // A JSON object for the bundle: `address`, `answer` (what RAS sent, or null), `why_none` (null,
  // or why there is no answer that can be trusted so far).
  std::string member;
};

inline constexpr size_t kRasMemberBytesMax = size_t{256} << 10;

// `address` as people write it; empty: none was asked.
RasWitness ras_silent(std::string_view address, std::string_view why_none);
// `answer`: JSON, else nothing is made of it; healthy ranks are left out of what is too long.
// `fault`: why it may lack its end; empty: it is whole. `own_pids`: of the ranks of this node that
// are in NCCL, as they see themselves: an answer that names none of them is of another job.
RasWitness ras_witness(std::string_view address, std::string_view answer, std::string_view fault,
                       const std::vector<pid_t>& own_pids);

// What the child prints (nccl_ras_child.h). What is none says so.
std::string encode_ras(const RasWitness& witness);
RasWitness decode_ras(std::string_view address, std::string_view printed);

}  // namespace muster::hang
