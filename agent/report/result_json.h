// Writes result.json: how a job ended, for programs (requeue rules, dashboards). schema.md has the
// schema; within one version of it fields are added but never change their meaning. Pure.
#pragma once

#include <string>

#include "agent/report/job_report.h"

namespace muster {

// Returns the whole file, pretty-printed, with a last newline. Invalid UTF-8 becomes U+FFFD.
std::string result_json(const JobReport& report, const ExitCodes& codes);

// "success", "failed", "stopped", "spawn_failed", "round_failed", "unkillable".
const char* outcome_name(JobEnd end);

}  // namespace muster
