#include "launcher/engines/node_list.h"

#include <algorithm>
#include <vector>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

constexpr size_t kHostsMax = 65536;

// Takes "rack[1-2]gpu[1,3]-ib" off the list, up to the next comma outside of brackets.
std::string_view take_item(std::string_view& list) {
  int depth = 0;
  size_t end = 0;
  for (; end < list.size() && (list[end] != ',' || depth > 0); ++end)
    depth += list[end] == '[' ? 1 : list[end] == ']' ? -1 : 0;
  const std::string_view item = list.substr(0, end);
  list.remove_prefix(std::min(list.size(), end + 1));
  return item;
}

// Appends `beginning` with each number of "001-004,7", which keep their leading zeros.
bool append_numbers(const std::string& beginning, std::string_view ranges,
                    std::vector<std::string>& hosts) {
  for (const std::string_view range : split(ranges, ',')) {
    const std::string_view first = range.substr(0, range.find('-'));
    const std::string_view last = range.substr(std::min(range.size(), range.rfind('-') + 1));
    const auto from = whole_number<size_t>(first);
    const auto to = whole_number<size_t>(last);
    if (!from || !to || *to < *from || *to - *from + hosts.size() >= kHostsMax) return false;
    for (size_t number = *from; number <= *to; ++number) {
      const std::string digits = std::to_string(number);
      hosts.push_back(beginning +
                      std::string(first.size() - std::min(first.size(), digits.size()), '0') +
                      digits);
    }
  }
  return true;
}

// All hosts of one item; empty if it is malformed or too long.
std::vector<std::string> hosts_of_item(std::string_view item) {
  std::vector<std::string> hosts{""};
  while (!item.empty()) {
    const size_t open = std::min(item.find('['), item.size());
    const size_t close = item.find(']', open);
    for (std::string& host : hosts)
      host += item.substr(0, open);
    if (open == item.size()) break;
    if (close == std::string_view::npos) return {};
    std::vector<std::string> longer;
    for (const std::string& host : hosts) {
      if (!append_numbers(host, item.substr(open + 1, close - open - 1), longer)) return {};
    }
    hosts = std::move(longer);
    item.remove_prefix(close + 1);
  }
  return hosts;
}

}  // namespace

std::optional<int> position_of_host(std::string_view list, std::string_view host) {
  size_t position = 0;
  while (!list.empty() && position < kHostsMax) {
    const std::vector<std::string> hosts = hosts_of_item(trim(take_item(list)));
    if (hosts.empty()) return std::nullopt;
    const auto found = std::ranges::find(hosts, host);
    position += static_cast<size_t>(found - hosts.begin());
    if (found != hosts.end()) return static_cast<int>(position);
  }
  return std::nullopt;
}

std::string first_host_of(std::string_view list) {
  std::string host;
  bool in_brackets = false;
  bool skipping = false;  // True after the first number of a bracket.
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
