// Expands user text with fields that muster fills in: "{host}:{rank}", where "{{" and "}}" are
// braces, or "$host:$rank". Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

#include "agent/launch_spec.h"

namespace muster {

struct Field {
  std::string_view name;
  std::string value;
};

// Does not expand values again. The error is the first field that is unknown or lacks its brace.
tl::expected<std::string, std::string> fill_fields(std::string_view text,
                                                   const std::vector<Field>& fields);

// Expands "$name" and "${name}" like Python's string.Template: the longest name after `$` counts,
// "$$" becomes `$`, any other `$` stays.
std::string fill_template(std::string_view text, const std::vector<Field>& fields);

// "{time}, {host}"
std::string names_of_fields(const std::vector<Field>& fields);

// The fields of --log-dir: host, node_rank (empty if unknown before the rendezvous), job and start.
inline constexpr std::string_view kNodeRankField = "node_rank";
std::vector<Field> log_dir_fields(const LaunchSpec& spec, const std::string& run_id,
                                  const std::string& host);

}  // namespace muster
