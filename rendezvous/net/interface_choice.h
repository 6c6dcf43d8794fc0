// Chooses the network interface for Gloo and NCCL in the workers, and whether to set it. If a
// machine has several, both guess, and often pick one that does not reach the peers. Gloo takes the
// one to which the machine's host name resolves, on Debian loopback (127.0.1.1 in /etc/hosts), and
// loopback if the name resolves to nothing usable. Pure: interfaces.h reads the facts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/net/address.h"

namespace muster {

struct Interface {
  std::string name;
  unsigned index = 0;
  bool up = false;  // administratively up, with carrier
  bool loopback = false;
  std::vector<IpAddress> addresses;
};

// Recognises by name the bridges and taps of container and virtual-machine software (docker0, br-…,
// virbr0, veth…, cni0, cali…). They never lead to the peers of a training job.
bool is_container_plumbing(const std::string& name);

// True if up, neither loopback nor container plumbing, and with an address that is not link-local.
bool is_candidate(const Interface& interface);

struct InterfaceQuestion {
  std::vector<Interface> interfaces;
  IpAddress towards_peers;            // our end of the connection to the host node
  std::optional<std::string> wanted;  // --iface
  bool gloo_is_set = false;           // GLOO_SOCKET_IFNAME is in the environment
  bool nccl_is_set = false;           // NCCL_SOCKET_IFNAME is in the environment
  std::string own_name_fault;         // result of own_name_fault()
};

// Returns why other nodes cannot connect to where Gloo would listen ("this machine's own name,
// node1, resolves to 127.0.1.1"), or "" if they can. `leads_to` is in the resolver's order.
std::string own_name_fault(const std::string& name, const std::vector<IpAddress>& leads_to,
                           const std::vector<Interface>& interfaces);

// Variables to add to the workers' environment, and the one-line message that reports it.
struct InterfaceExport {
  std::optional<std::string> gloo;  // GLOO_SOCKET_IFNAME
  std::optional<std::string> nccl;  // NCCL_SOCKET_IFNAME, "=eth0": a prefix without the =
  std::string note;
  friend bool operator==(const InterfaceExport&, const InterfaceExport&) = default;
};

// Returns nullopt if both variables are set. Without --iface, also if the peers are on this machine
// or there is only one candidate; that one is set for Gloo if the machine's own name misleads Gloo.
std::optional<InterfaceExport> choose_interface_export(const InterfaceQuestion& question);

}  // namespace muster
