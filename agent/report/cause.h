// Says in words why a worker ended, from its exit status, its own last words and what the machine
// showed. Pure. A statement appears only where the evidence carries it; a guess says "probably".
#pragma once

#include "agent/report/job_report.h"
#include "agent/report/signs.h"

namespace muster {

// `error`: its own words, as far as they can be why it ended (examine in signs.h).
Cause classify(const WorkerFailure& failure, const HostEvidence& evidence, const OwnError& error);

// "user", "oom", ...: the spelling in result.json.
const char* failure_class_name(FailureClass kind);

// Whether this death is what our stop with `stop_signal`, followed by KILL if `killed`, causes:
// killed by one of them, or the shell convention 128 + n.
bool explained_by_stop(const ExitStatus& status, int stop_signal, bool killed);

}  // namespace muster
