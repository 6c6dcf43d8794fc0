#include "agent/output/fields.h"

#include <algorithm>
#include <cctype>

namespace muster {
namespace {

std::string node_rank(const RendezvousSpec& rendezvous) {
  if (rendezvous.node_rank) return std::to_string(*rendezvous.node_rank);
  return rendezvous.nnodes_max == 1 && rendezvous.spares == 0 ? "0" : "";
}

bool is_of_name(char c) {
  return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0;
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

std::string fill_template(std::string_view text, const std::vector<Field>& fields) {
  std::string filled;
  for (size_t at = text.find('$'); at != std::string_view::npos; at = text.find('$')) {
    filled.append(text.substr(0, at));
    text.remove_prefix(at + 1);
    const bool braced = text.starts_with('{');
    const std::string_view rest = text.substr(braced ? 1 : 0);
    const std::string_view name(rest.begin(), std::ranges::find_if_not(rest, is_of_name));
    const auto field = std::ranges::find(fields, name, &Field::name);
    if (field != fields.end() && (!braced || rest.substr(name.size()).starts_with('}'))) {
      filled.append(field->value);
      text.remove_prefix(name.size() + (braced ? 2 : 0));
    } else {
      filled.push_back('$');
      if (text.starts_with('$')) text.remove_prefix(1);
    }
  }
  return filled.append(text);
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
