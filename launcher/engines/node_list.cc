#include "launcher/engines/node_list.h"

#include "launcher/values/values.h"

namespace muster {

std::string first_host_of(std::string_view list) {
  std::string host;
  bool in_brackets = false;
  bool skipping = false;  // The rest of a bracket after its first number.
  for (const char c : list) {
    if (c == ',' && !in_brackets) break;
    if (c == '[' || c == ']') {
      in_brackets = c == '[';
      skipping = false;
    } else if (in_brackets && (c == ',' || c == '-')) {
      skipping = true;
    } else if (!skipping) {
      host += c;
    }
  }
  return std::string(trim(host));
}

int tasks_on_node(std::string_view counts, int node) {
  if (node < 0) return 0;
  for (const std::string_view item : split(counts, ',')) {
    const std::size_t times = item.find("(x");
    const Parsed<int> count = parse_int(item.substr(0, times), 0);
    const bool is_repeated = times != std::string_view::npos;
    if (is_repeated && !item.ends_with(')')) return 0;
    const Parsed<int> nodes =
        is_repeated ? parse_int(item.substr(times + 2, item.size() - times - 3), 1) : 1;
    if (!count || !nodes) return 0;
    if (node < *nodes) return *count;
    node -= *nodes;
  }
  return 0;
}

}  // namespace muster
