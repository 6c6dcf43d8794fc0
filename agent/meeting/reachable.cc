#include "agent/meeting/reachable.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace muster {
namespace {

constexpr size_t kReachableMax = 8;

enum class Likely { network, loopback, containers };

Likely how_likely(const Interface& interface) {
  if (is_container_plumbing(interface.name)) return Likely::containers;
  return interface.loopback ? Likely::loopback : Likely::network;
}

bool leads_here(const IpAddress& address) {
  return !address.is_loopback() && !address.is_link_local() && !address.is_any();
}

}  // namespace

std::string reachable_text(const std::vector<Interface>& interfaces) {
  std::vector<std::string> texts;
  const auto add = [&](Likely likely, bool v6) {
    for (const Interface& interface : interfaces) {
      if (!interface.up || how_likely(interface) != likely) continue;
      for (const IpAddress& address : interface.addresses) {
        const std::string text = address.to_string();
        if (address.is_v6() == v6 && leads_here(address) && std::ranges::count(texts, text) == 0)
          texts.push_back(text);
      }
    }
  };
  for (const Likely likely : {Likely::network, Likely::loopback, Likely::containers}) {
    add(likely, false);
    add(likely, true);
  }
  if (texts.empty()) return IpAddress::loopback_v4().to_string();
  texts.resize(std::min(texts.size(), kReachableMax));
  return fmt::format("{}", fmt::join(texts, ","));
}

}  // namespace muster
