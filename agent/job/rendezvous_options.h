// From what the user asked for to how this node meets the others of its job. Pure: the agent has
// looked up its host name and read the token before, and make_rendezvous (rendezvous.h) does the
// rest. This is where the names of torchrun's backends end; behind it there are ways to meet.
#pragma once

#include <string>

#include "agent/launch_spec.h"
#include "rendezvous/backends/rendezvous.h"

namespace muster {

// Whether the job has, or may come to have, more than one node: then others rule with us over
// restarts and over the end.
bool is_coordinated(const RendezvousSpec& spec);

struct NodeFacts {
  int workers = 1;
  std::string host_name;
  std::string run_id;
  std::string token;  // Empty: none.
};

RendezvousOptions rendezvous_options(const LaunchSpec& spec, const NodeFacts& node);

}  // namespace muster
