#include "rendezvous/base/process_stat.h"

#include <fcntl.h>
#include <fmt/format.h>

#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {
namespace {

constexpr size_t kStatBytesMax = 4096;  // 52 numbers of up to 20 digits, and the name.

}  // namespace

// Avoids iostreams, which would make up two thirds of the Python module.
std::vector<std::string> stat_fields(int pid) {
  const UniqueFd file(open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
  const std::string text = read_up_to(file.get(), kStatBytesMax);
  const size_t bracket = text.rfind(')');
  if (bracket == std::string::npos) return {};
  std::vector<std::string> fields;
  for (const std::string_view field : split(trim(std::string_view(text).substr(bracket + 1)), ' '))
    fields.emplace_back(field);
  return fields;
}

bool is_over(const std::vector<std::string>& fields) {
  return fields.size() < 20 || fields[0] == "Z" || fields[0] == "X";
}

uint64_t start_ticks(const std::vector<std::string>& fields) {
  return is_over(fields) ? 0 : whole_number<uint64_t>(fields[19]).value_or(0);
}

}  // namespace muster
