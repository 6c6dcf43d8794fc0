// Text of the user with fields that muster fills in: "{host}:{rank}". "{{" and "}}" are braces.
// Pure.
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

// A value is not filled in again. The error is the first field that is not among `fields`, or that
// no brace ends.
tl::expected<std::string, std::string> fill_fields(std::string_view text,
                                                   const std::vector<Field>& fields);

// "{time}, {host}"
std::string names_of_fields(const std::vector<Field>& fields);

// Those of --log-dir: host, node_rank, job and start. The node's rank is empty where it is not
// known before the nodes have met.
inline constexpr std::string_view kNodeRankField = "node_rank";
std::vector<Field> log_dir_fields(const LaunchSpec& spec, const std::string& run_id,
                                  const std::string& host);

}  // namespace muster
