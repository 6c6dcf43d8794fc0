// Says in words why a worker ended, from its exit status, its own error message and what the
// machine showed. Pure. States only what the evidence supports; a guess says "probably".
#pragma once

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

}  // namespace muster
