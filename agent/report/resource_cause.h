// The ends that a limit or a want of memory explains: what the kernel killed for it, also below a
// worker, and where it refused a process or a thread. Pure.
#pragma once

#include <string>
#include <string_view>

#include "agent/report/job_report.h"

namespace muster {

// Says why SIGKILL ended a worker to which muster had not sent it.
Cause classify_kill(const WorkerFailure& failure, const HostEvidence& evidence);

// Whether `words` say that a process of the program's own was killed: by SIGKILL, or all of a
// sudden.
bool tells_of_killed_helper(std::string_view words);

// What the kernel has killed for memory where the rank's words tell of it, to follow its own end:
// "the kernel's out-of-memory killer had killed its process 4711 (python3)"; empty: nothing.
std::string killed_helper(const HostEvidence& evidence, std::string_view words);

// The remedy where such a death may be why the rank failed, or may not have mattered.
std::string memory_note(const Cause& cause, const HostEvidence& evidence);

// Whether the program was refused a process or a thread, though its exception does not say what.
bool failed_to_fork(const WorkerFailure& failure, const HostEvidence& evidence,
                    std::string_view exception);

}  // namespace muster
