#include "rendezvous/net/interface_choice.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace muster {
namespace {

std::string interface_with(const std::vector<Interface>& interfaces, const IpAddress& address) {
  for (const Interface& interface : interfaces) {
    const auto& all = interface.addresses;
    if (std::find(all.begin(), all.end(), address) != all.end()) return interface.name;
  }
  return "";
}

std::string export_note(const InterfaceExport& chosen, const InterfaceQuestion& question,
                        const std::string& name, const std::vector<std::string>& others) {
  std::vector<std::string> settings;
  if (chosen.gloo) settings.push_back("GLOO_SOCKET_IFNAME=" + *chosen.gloo);
  if (chosen.nccl) settings.push_back("NCCL_SOCKET_IFNAME=" + *chosen.nccl);
  const std::string why =
      question.wanted ? "as --iface asks"
                      : fmt::format("{} reaches the other nodes; {} {} there too", name,
                                    fmt::join(others, ", "), others.size() == 1 ? "is" : "are");
  return fmt::format("workers get {} ({}); --no-iface-env stops this", fmt::join(settings, " "),
                     why);
}

}  // namespace

bool is_container_plumbing(const std::string& name) {
  constexpr std::array<std::string_view, 19> kPrefixes = {
      "docker", "br-",          "virbr", "veth", "vnet",   "cni",  "cali",
      "cilium", "flannel",      "lxc",   "lxd",  "podman", "kube", "weave",
      "vxlan",  "nodelocaldns", "dummy", "ifb",  "tunl"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

bool is_candidate(const Interface& interface) {
  return interface.up && !interface.loopback && !is_container_plumbing(interface.name) &&
         std::any_of(interface.addresses.begin(), interface.addresses.end(),
                     [](const IpAddress& address) { return !address.is_link_local(); });
}

std::optional<InterfaceExport> choose_interface_export(const InterfaceQuestion& question) {
  if (question.gloo_is_set && question.nccl_is_set) return std::nullopt;
  const std::string name =
      question.wanted.value_or(interface_with(question.interfaces, question.towards_peers));
  std::vector<std::string> others;
  for (const Interface& interface : question.interfaces) {
    if (interface.name != name && is_candidate(interface)) others.push_back(interface.name);
  }
  if (!question.wanted) {
    const bool peers_are_here = name.empty() || question.towards_peers.is_loopback();
    if (peers_are_here || others.empty()) return std::nullopt;
  }
  InterfaceExport chosen;
  if (!question.gloo_is_set) chosen.gloo = name;
  if (!question.nccl_is_set) chosen.nccl = "=" + name;
  chosen.note = export_note(chosen, question, name, others);
  return chosen;
}

}  // namespace muster
