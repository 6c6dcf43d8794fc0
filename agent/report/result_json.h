// result.json: how a job ended, for programs (requeue rules, dashboards). The schema is in
// schema.md and has a version, within which fields are added but never change their meaning. Pure.
#pragma once

#include <string>

#include "agent/report/job_report.h"

namespace muster {

// The whole file, pretty-printed, ending in a newline. Bytes that are not UTF-8 become U+FFFD.
std::string result_json(const JobReport& report, const ExitCodes& codes);

// "success", "failed", "stopped", "spawn_failed", "round_failed", "unkillable".
const char* outcome_name(JobEnd end);

}  // namespace muster
