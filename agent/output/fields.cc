#include "agent/output/fields.h"

#include <algorithm>

namespace muster {
namespace {

std::string node_rank(const RendezvousSpec& rendezvous) {
  if (rendezvous.node_rank) return std::to_string(*rendezvous.node_rank);
  return rendezvous.nnodes_max == 1 && rendezvous.spares == 0 ? "0" : "";
}

}  // namespace

tl::expected<std::string, std::string> fill_fields(std::string_view text,
                                                   const std::vector<Field>& fields) {
  std::string filled;
  while (!text.empty()) {
    if (text.starts_with("{{") || text.starts_with("}}")) {
      text.remove_prefix(1);
    } else if (text.front() == '{') {
      const size_t close = text.find('}');
      const std::string_view name = text.substr(1, close == text.npos ? close : close - 1);
      const auto field = std::ranges::find(fields, name, &Field::name);
      if (close == text.npos || field == fields.end())
        return tl::unexpected<std::string>(std::string(name));
      filled += field->value;
      text.remove_prefix(close + 1);
      continue;
    }
    filled += text.front();
    text.remove_prefix(1);
  }
  return filled;
}

std::string names_of_fields(const std::vector<Field>& fields) {
  std::string names;
  for (const Field& field : fields) {
    if (!names.empty()) names += ", ";
    names.append("{").append(field.name).append("}");
  }
  return names;
}

std::vector<Field> log_dir_fields(const LaunchSpec& spec, const std::string& run_id,
                                  const std::string& host) {
  std::string job = spec.engine.job.empty() ? run_id : spec.engine.job;
  std::ranges::replace(job, '/', '_');  // Keeps it one folder, like the run's.
  return {{"host", host},
          {kNodeRankField, node_rank(spec.rendezvous)},
          {"job", job},
          {"start", std::to_string(spec.engine.starts)}};
}

}  // namespace muster
