#include "agent/output/line_filter.h"

#include <algorithm>

#include "rendezvous/base/text.h"

namespace muster {

void LineFilter::feed(std::string_view prefix, std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const size_t newline = bytes.find('\n');
    if (newline == std::string_view::npos) {
      partial_.append(bytes);
      if (partial_.size() >= kLineMax) finish(prefix, out);
      return;
    }
    if (partial_.empty()) {
      judge(prefix, bytes.substr(0, newline), out);
    } else {
      partial_.append(bytes.substr(0, newline));
      finish(prefix, out);
    }
    bytes.remove_prefix(newline + 1);
  }
}

void LineFilter::finish(std::string_view prefix, std::string& out) {
  if (!partial_.empty()) judge(prefix, partial_, out);
  partial_.clear();
}

void LineFilter::judge(std::string_view prefix, std::string_view line, std::string& out) const {
  if (std::ranges::any_of(needles_, [&](const std::string& one) { return contains(line, one); }))
    out.append(prefix).append(line).push_back('\n');
}

}  // namespace muster
