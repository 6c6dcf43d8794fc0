// Shows a finding in one line, so that a test compares all of its fields at once:
// "0-3 A: x | uncaught | blames 1,2".
#pragma once

#include <optional>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "agent/report/finding.h"

namespace muster {

inline std::string text_of(const std::optional<Finding>& finding) {
  if (!finding) return "nothing";
  std::string text = fmt::format("{}-{} {}", finding->first, finding->end, finding->text);
  if (finding->uncaught) text += " | uncaught";
  if (finding->standing == Standing::minor) text += " | minor";
  if (finding->standing == Standing::echo) text += " | echo";
  if (finding->standing == Standing::by_excepthook) text += " | by excepthook";
  if (finding->tells_of_child) text += " | of a child";
  if (!finding->blame) return text;
  text += fmt::format(" | blames {}", fmt::join(finding->blame->ranks, ","));
  if (finding->blame->is_hearsay) text += "hearsay";
  return text + (finding->blame->any_connection ? "any connection" : "");
}

}  // namespace muster
