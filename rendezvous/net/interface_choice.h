// Which network interface the workers' own libraries should use, and whether to tell them. Gloo and
// NCCL pick one by guess when a machine has several, and often pick one that does not reach the
// peers. Gloo takes the one that the machine's own name leads to, which on Debian is loopback
// (127.0.1.1 in /etc/hosts), and loopback where the name leads nowhere. Pure: interfaces.h reads
// what this decides on.
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
  std::string own_name_fault;         // of own_name_fault()
};

// "this machine's own name, node1, leads to 127.0.1.1": why the other nodes cannot come back to
// where Gloo would listen. Empty where they can. `leads_to` is in the resolver's order.
std::string own_name_fault(const std::string& name, const std::vector<IpAddress>& leads_to,
                           const std::vector<Interface>& interfaces);

// What to add to the workers' environment; `note` is the one line that says so.
struct InterfaceExport {
  std::optional<std::string> gloo;  // GLOO_SOCKET_IFNAME
  std::optional<std::string> nccl;  // NCCL_SOCKET_IFNAME, "=eth0": without = it is a prefix
  std::string note;
  friend bool operator==(const InterfaceExport&, const InterfaceExport&) = default;
};

// Nothing where both are set or the peers are on this machine, nor, unless one was asked for, where
// there is one candidate only; but Gloo is told of that one if the machine's own name misleads it.
std::optional<InterfaceExport> choose_interface_export(const InterfaceQuestion& question);

}  // namespace muster
