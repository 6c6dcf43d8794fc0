#include "rendezvous/base/process_stat.h"

#include <fstream>
#include <iterator>
#include <sstream>

#include <fmt/format.h>

#include "rendezvous/base/text.h"

namespace muster {

std::vector<std::string> stat_fields(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const size_t bracket = text.rfind(')');
  if (bracket == std::string::npos) return {};
  std::istringstream fields(text.substr(bracket + 1));
  return {std::istream_iterator<std::string>(fields), {}};
}

bool is_over(const std::vector<std::string>& fields) {
  return fields.size() < 20 || fields[0] == "Z" || fields[0] == "X";
}

uint64_t start_ticks(const std::vector<std::string>& fields) {
  return is_over(fields) ? 0 : whole_number<uint64_t>(fields[19]).value_or(0);
}

}  // namespace muster
