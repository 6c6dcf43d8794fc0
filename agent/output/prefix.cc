#include "agent/output/prefix.h"

#include <algorithm>
#include <cctype>
#include <optional>

namespace muster {

namespace {

bool starts_name(char c) {
  return c == '_' || std::isalpha(static_cast<unsigned char>(c)) != 0;
}
bool continues_name(char c) {
  return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0;
}

std::optional<std::string> torch_value(std::string_view name, const PrefixFacts& facts) {
  if (name == "role_name") return facts.role;
  if (name == "hostname") return facts.hostname;
  if (name == "rank") return std::to_string(facts.rank);
  if (name == "local_rank") return std::to_string(facts.local_rank);
  return std::nullopt;
}

// Length of the placeholder at the front of `text`, which begins with '$'; 0 if there is none.
size_t placeholder_length(std::string_view text) {
  const bool braced = text.size() > 1 && text[1] == '{';
  const size_t begin = braced ? 2 : 1;
  size_t end = begin;
  if (end >= text.size() || !starts_name(text[end])) return 0;
  while (end < text.size() && continues_name(text[end]))
    end++;
  if (!braced) return end;
  return end < text.size() && text[end] == '}' ? end + 1 : 0;
}

std::string_view placeholder_name(std::string_view placeholder) {
  if (placeholder[1] == '{') return placeholder.substr(2, placeholder.size() - 3);
  return placeholder.substr(1);
}

void replace_placeholder(std::string& text, std::string_view what, std::string_view by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
}

}  // namespace

std::string tee_prefix(std::string_view text, const PrefixFacts& facts) {
  if (text.empty()) return "[" + facts.role + std::to_string(facts.local_rank) + "]:";
  std::string result;
  while (!text.empty()) {
    const size_t dollar = std::min(text.find('$'), text.size());
    result.append(text.substr(0, dollar));
    text.remove_prefix(dollar);
    if (text.empty()) break;
    if (text.starts_with("$$")) {
      result.push_back('$');
      text.remove_prefix(2);
      continue;
    }
    const size_t length = placeholder_length(text);
    if (length == 0) {
      result.push_back('$');
      text.remove_prefix(1);
      continue;
    }
    const std::string_view whole = text.substr(0, length);
    result.append(torch_value(placeholder_name(whole), facts).value_or(std::string(whole)));
    text.remove_prefix(length);
  }
  return result;
}

LogPrefix::LogPrefix(std::string_view text, const PrefixFacts& facts) : text_(text) {
  replace_placeholder(text_, "{host}", facts.hostname);
  replace_placeholder(text_, "{rank}", std::to_string(facts.rank));
  replace_placeholder(text_, "{local_rank}", std::to_string(facts.local_rank));
  replace_placeholder(text_, "{role}", facts.role);
  text_.push_back(' ');
}

std::string LogPrefix::at(std::string_view time) const {
  std::string result = text_;
  replace_placeholder(result, kTime, time);
  return result;
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

}  // namespace muster
