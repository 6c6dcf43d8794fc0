#include "agent/control/job_entry.h"

#include <nlohmann/json.hpp>

namespace muster {

std::string job_entry_text(const JobEntry& entry) {
  const nlohmann::json object{
      {"pid", entry.pid}, {"id", entry.id}, {"program", entry.program}, {"started", entry.started}};
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void read_job_entry(std::string_view text, JobEntry& entry) {
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object()) return;
  const auto set = [&](const char* key, std::string& value) {
    const auto found = object.find(key);
    if (found != object.end() && found->is_string()) value = found->get<std::string>();
  };
  set("id", entry.id);
  set("program", entry.program);
  const auto started = object.find("started");
  if (started != object.end() && started->is_number()) entry.started = started->get<double>();
}

}  // namespace muster
