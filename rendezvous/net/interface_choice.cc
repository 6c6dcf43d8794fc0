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
  std::string why = fmt::format("{} reaches the other nodes; {} {} there too", name,
                                fmt::join(others, ", "), others.size() == 1 ? "is" : "are");
  if (question.wanted) {
    why = "as --iface asks";
  } else if (others.empty()) {
    why = fmt::format("{} reaches the other nodes; {}", name, question.own_name_fault);
  }
  return fmt::format("workers get {} ({}); --no-iface-env turns this off", fmt::join(settings, " "),
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

std::string own_name_fault(const std::string& name, const std::vector<IpAddress>& leads_to,
                           const std::vector<Interface>& interfaces) {
  for (const IpAddress& address : leads_to) {
    const bool ours = address.is_loopback() || !interface_with(interfaces, address).empty();
    if (!ours) continue;  // Gloo cannot listen there and tries the next one.
    if (!address.is_loopback()) return "";
    return fmt::format("this machine's own name, {}, resolves to {}", name, address.to_string());
  }
  return fmt::format("this machine's own name, {}, resolves to none of its addresses", name);
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
    if (peers_are_here) return std::nullopt;
    if (others.empty() && (question.own_name_fault.empty() || question.gloo_is_set))
      return std::nullopt;
  }
  const bool no_choice = !question.wanted && others.empty();  // NCCL finds the only one itself.
  InterfaceExport chosen;
  if (!question.gloo_is_set) chosen.gloo = name;
  if (!question.nccl_is_set && !no_choice) chosen.nccl = "=" + name;
  chosen.note = export_note(chosen, question, name, others);
  return chosen;
}

}  // namespace muster
