// Writes result.json: how a job ended, for programs (requeue rules, dashboards). schema.md has the
// schema; within one version of it fields are added but never change their meaning. Pure.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "agent/report/job_report.h"

namespace muster {

// Returns the whole file, pretty-printed, with a last newline. Invalid UTF-8 becomes U+FFFD.
std::string result_json(const JobReport& report, const ExitCodes& codes);

// The findings on a hang, with the same fields as in events.jsonl (schema.md, "Hangs"). A field
// without a value is null.
nlohmann::ordered_json hang_json(const HangReport& hang);

// "success", "failed", "stopped", "spawn_failed", "round_failed", "unkillable".
const char* outcome_name(JobEnd end);

}  // namespace muster
