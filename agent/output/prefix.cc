#include "agent/output/prefix.h"

#include <algorithm>

#include "rendezvous/base/text.h"

namespace muster {

std::string tee_prefix(std::string_view text, const PrefixFacts& facts) {
  if (text.empty()) return "[" + facts.role + std::to_string(facts.local_rank) + "]:";
  return fill_template(text, {{"role_name", facts.role},
                              {"local_rank", std::to_string(facts.local_rank)},
                              {"rank", std::to_string(facts.rank)},
                              {"hostname", facts.hostname}});
}

std::vector<Field> log_prefix_fields(const PrefixFacts& facts) {
  return {{"time", std::string(kTimePlaceholder)},
          {"host", facts.hostname},
          {"rank", std::to_string(facts.rank)},
          {"local_rank", std::to_string(facts.local_rank)},
          {"role", facts.role}};
}

std::string log_prefix(std::string_view text, const PrefixFacts& facts) {
  return fill_fields(text, log_prefix_fields(facts)).value_or(std::string(text)) + ' ';
}

std::string with_time(std::string prefix, std::string_view time) {
  for (size_t at = prefix.find(kTimePlaceholder); at != std::string::npos;
       at = prefix.find(kTimePlaceholder, at + time.size())) {
    prefix.replace(at, kTimePlaceholder.size(), time);
  }
  return prefix;
}

void LinePrefixer::apply(std::string_view prefix, std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    if (at_start_) out.append(prefix);
    const size_t newline = bytes.find('\n');
    at_start_ = newline != std::string_view::npos;
    const size_t length = at_start_ ? newline + 1 : bytes.size();
    out.append(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
}

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
