// Explains in words why a worker ended, from its exit status, its own error message and what the
// machine showed. States only what the evidence supports; a guess says "probably". Pure.
#pragma once

#include <string>
#include <string_view>

#include "agent/report/job_report.h"
#include "agent/report/signs.h"

namespace muster {

// `error`: the worker's own error, if it can explain the end (see examine() in signs.h).
Cause classify(const WorkerFailure& failure, const HostEvidence& evidence, const OwnError& error);

// "user", "oom", ...: the spelling in result.json.
const char* failure_class_name(FailureClass kind);

// True if muster's stop with `stop_signal`, followed by KILL if `killed`, explains this end: death
// by one of these signals, or the shell convention 128 + n.
bool explained_by_stop(const ExitStatus& status, int stop_signal, bool killed);

// ---- ends explained by a limit or a lack of memory

// Explains a SIGKILL that muster did not send.
Cause classify_kill(const WorkerFailure& failure, const HostEvidence& evidence);

// True if `words` report that a child of the program died of SIGKILL, or unexpectedly.
bool tells_of_killed_helper(std::string_view words);

// "the kernel's out-of-memory killer had killed its process 4711 (python3)", to follow the rank's
// own end. Empty unless the rank's words report such a death.
std::string killed_helper(const HostEvidence& evidence, std::string_view words);

// The remedy if such a death may have caused the rank's failure, but need not have.
std::string memory_note(const Cause& cause, const HostEvidence& evidence);

// True if the program was refused a process or a thread and its exception does not say so.
bool failed_to_fork(const WorkerFailure& failure, const HostEvidence& evidence,
                    std::string_view exception);

}  // namespace muster
