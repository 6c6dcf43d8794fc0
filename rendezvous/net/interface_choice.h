// Which network interface the workers' own libraries should use, and whether to tell them. Gloo and
// NCCL pick one by guess when a machine has several, and often pick one that does not reach the
// peers. Pure: interfaces.h reads what this decides on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/net/address.h"

namespace muster {

struct Interface {
  std::string name;
  unsigned index = 0;
  bool up = false;  // administratively, and it has a carrier
  bool loopback = false;
  std::vector<IpAddress> addresses;
  friend bool operator==(const Interface&, const Interface&) = default;
};

// The bridges and taps that container and virtual-machine software makes on a host (docker0, br-…,
// virbr0, veth…, cni0, cali…), by name. They never lead to the peers of a training job.
bool is_container_plumbing(const std::string& name);

// Could carry the job's traffic: up, not loopback, no plumbing, with an address that is not
// link-local.
bool is_candidate(const Interface& interface);

struct InterfaceQuestion {
  std::vector<Interface> interfaces;
  IpAddress towards_peers;            // our end of the connection to the host
  std::optional<std::string> wanted;  // --iface
  bool gloo_is_set = false;           // GLOO_SOCKET_IFNAME is in the environment
  bool nccl_is_set = false;           // NCCL_SOCKET_IFNAME is
};

// What to add to the workers' environment; `note` is the one line that says so.
struct InterfaceExport {
  std::optional<std::string> gloo;  // GLOO_SOCKET_IFNAME
  std::optional<std::string> nccl;  // NCCL_SOCKET_IFNAME, "=eth0": without = it is a prefix
  std::string note;
  friend bool operator==(const InterfaceExport&, const InterfaceExport&) = default;
};

// Nothing where there is one candidate only and none was asked for, where both are set, or where
// the peers are on this machine.
std::optional<InterfaceExport> choose_interface_export(const InterfaceQuestion& question);

}  // namespace muster
