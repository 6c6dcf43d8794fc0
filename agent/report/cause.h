// Says in words why a worker ended, from its exit status, its own last words and what the machine
// showed. Pure. A statement appears only where the evidence carries it; a guess says "probably".
#pragma once

#include "agent/report/job_report.h"

namespace muster {

Cause classify(const WorkerFailure& failure, const HostEvidence& evidence);

// "user", "oom", ...: the spelling in result.json.
const char* failure_class_name(FailureClass kind);

// Whether this death is what our stop with `stop_signal` (followed by KILL after the grace) causes:
// killed by that signal or by SIGKILL, or the shell convention 128 + stop_signal.
bool explained_by_stop(const ExitStatus& status, int stop_signal);

}  // namespace muster
