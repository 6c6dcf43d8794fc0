// Says in words why a worker ended, from its exit status, its own error message and what the
// machine showed. Pure. States only what the evidence supports; a guess says "probably".
#pragma once

#include <string>
#include <string_view>

#include "agent/report/job_report.h"
#include "agent/report/signs.h"

namespace muster {

// `error`: the worker's own error, if it can be why it ended (examine in signs.h).
Cause classify(const WorkerFailure& failure, const HostEvidence& evidence, const OwnError& error);

// "user", "oom", ...: the spelling in result.json.
const char* failure_class_name(FailureClass kind);

// Whether this end is what muster's stop with `stop_signal`, followed by KILL if `killed`, causes:
// death by one of these signals, or the shell convention 128 + n.
bool explained_by_stop(const ExitStatus& status, int stop_signal, bool killed);

// ---- ends that a limit or a want of memory explains (resource_cause.cc): what the kernel killed
// for it, also below a worker, and where it refused a process or a thread

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
