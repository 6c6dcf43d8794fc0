#include "agent/report/core_pattern.h"

#include <fmt/format.h>

namespace muster {
namespace {

std::string glob_quoted(std::string_view text) {
  std::string quoted;
  for (const char c : text) {
    if (c == '*' || c == '?' || c == '[' || c == ']' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted;
}

std::string known_or_any(const std::string& text) {
  return text.empty() ? std::string("*") : glob_quoted(text);
}

// The kernel writes '!' for '/' in the values that it fills in, so a value never adds a folder.
std::string expand(char specifier, const CoreFacts& facts) {
  switch (specifier) {
    case '%':
      return "%";
    case 'p':
      return fmt::format("{}", facts.pid);
    case 's':
      return facts.signal > 0 ? fmt::format("{}", facts.signal) : "*";
    case 'e':
      return known_or_any(facts.comm);
    case 'h':
      return known_or_any(facts.hostname);
    default:
      return "*";
  }
}

std::string_view without_newline(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

}  // namespace

std::optional<std::string> core_glob(std::string_view core_pattern, const CoreFacts& facts) {
  const std::string_view pattern = without_newline(core_pattern);
  if (pattern.empty() || pattern.front() == '|') return {};
  std::string name;
  bool names_pid = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      name += glob_quoted(pattern.substr(i, 1));
    } else if (++i < pattern.size()) {
      names_pid = names_pid || pattern[i] == 'p';
      name += expand(pattern[i], facts);
    }
  }
  if (facts.append_pid && !names_pid) name += fmt::format(".{}", facts.pid);
  if (name.empty()) return {};
  if (name.front() == '/') return name;
  return facts.cwd.empty() ? std::nullopt : std::optional(glob_quoted(facts.cwd) + "/" + name);
}

std::string core_handler_hint(std::string_view core_pattern, pid_t pid) {
  std::string_view pattern = without_newline(core_pattern);
  if (!pattern.starts_with('|')) return {};
  pattern = pattern.substr(0, pattern.find(' ')).substr(1);
  const std::string_view program = pattern.substr(pattern.rfind('/') + 1);
  if (program == "systemd-coredump") return fmt::format("coredumpctl info {}", pid);
  if (program == "apport") return "ls /var/crash";
  return fmt::format("ask {}, which this machine hands its cores to", program);
}

}  // namespace muster
