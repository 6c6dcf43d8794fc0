// The findings on a hang as a JSON object: the same fields in events.jsonl and in result.json
// (schema.md, "Hangs"). A field without a value is null. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "agent/report/job_report.h"

namespace muster {

nlohmann::ordered_json hang_json(const HangReport& hang);

}  // namespace muster
