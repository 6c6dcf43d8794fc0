// Translates the user's options into how this node meets the others of its job. Pure: the agent has
// the host name and the token already, and make_rendezvous (rendezvous.h) does the rest. Torchrun's
// backend names end here; beyond there is only RendezvousOptions::Way.
#pragma once

#include <string>

#include "agent/launch_spec.h"
#include "rendezvous/backends/rendezvous.h"

namespace muster {

// Whether the job has, or may come to have, more than one node: then the job's host decides about
// restarts and about the end.
bool is_coordinated(const RendezvousSpec& spec);

struct NodeFacts {
  int workers = 1;
  std::string host_name;
  std::string run_id;
  std::string token;  // Empty: none.
  // Of rank 0, and of the launch, for a spec that has them asked for.
  std::string pmi_host = {};
  std::string pmi_job = {};
};

RendezvousOptions rendezvous_options(const LaunchSpec& spec, const NodeFacts& node);

}  // namespace muster
