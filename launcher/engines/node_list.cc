#include "launcher/engines/node_list.h"

#include "rendezvous/base/text.h"

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

}  // namespace muster
