// Translates the user's options into how this node meets the others of its job. Pure: the agent has
// the host name and the token already, and make_rendezvous (rendezvous.h) does the rest. Torchrun's
// backend names end here; beyond there is only RendezvousOptions::Way.
#pragma once

#include <string>

#include "agent/launch_spec.h"
#include "rendezvous/backends/rendezvous.h"

namespace muster {

// True if a host decides about restarts and the end: several nodes possible, or a file or etcd.
bool is_coordinated(const RendezvousSpec& spec);

struct NodeFacts {
  int workers = 1;
  std::string host_name;
  std::string run_id;
  std::string token;  // Empty: none.
  // Rank 0's host, and the id of the launch; only if the spec asks PMI.
  std::string pmi_host = {};
  std::string pmi_job = {};
};

RendezvousOptions rendezvous_options(const LaunchSpec& spec, const NodeFacts& node);

}  // namespace muster
