// What a simulated job is made of: everything random that is not decided on the way, drawn from one
// seed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/base/time.h"

namespace muster::roundsim {

struct Plan {
  uint64_t seed = 0;

  int nodes = 2;  // Machines that take part; node 0 is the host's.
  int nodes_min = 2;
  int nodes_max = 2;
  bool explicit_ranks = false;  // Node i asks for rank i.
  int slots_max = 1;
  int max_restarts = 0;
  std::optional<int> max_membership_changes;
  Duration last_call{};
  Duration join_timeout{};
  Duration lease{};
  Duration goodbye_patience = std::chrono::seconds{1};

  Duration horizon{};          // When faults cease.
  int faults = 0;              // How many things happen from outside until then.
  int late_percent = 0;        // Of nodes that start some time later than the first.
  int slow_percent = 0;        // Of messages that take up to 200 ms instead of 2.
  int unreliable_percent = 0;  // Of messages that are dropped, doubled or overtaken.
  int failing_percent = 0;     // Of worker groups that fail by themselves.
  int done_percent = 0;        // Of worker groups that end well by themselves.
  int slow_stop_percent = 0;   // Of worker groups that take up to 2 s to stop.
  int store_fails_percent = 0;
  Duration host_cost{};  // Of the host's processor for one message.

  // From the end of all faults until one common epoch or one end (see membership_sim.h).
  Duration bound() const;
};

Plan plan_for(uint64_t seed);
// A round of so many nodes, all started at one instant, and nothing goes wrong.
Plan plan_for_scale(int nodes);
std::string to_text(const Plan& plan);

}  // namespace muster::roundsim
