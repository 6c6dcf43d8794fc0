// The parameters of a simulated job: everything random that is not decided during the run, drawn
// from one seed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/base/time.h"

namespace muster::roundsim {

struct Plan {
  uint64_t seed = 0;

  int nodes = 2;  // Number of machines; the host runs on node 0.
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
  bool may_be_followed = false;  // True as for nodes that meet through a file or etcd.

  Duration horizon{};          // Time until faults stop.
  int faults = 0;              // Number of external faults until then.
  int late_percent = 0;        // Share of nodes that start some time after the first.
  int slow_percent = 0;        // Share of messages that take up to 200 ms instead of 2.
  int unreliable_percent = 0;  // Share of messages that are dropped, duplicated or overtaken.
  int failing_percent = 0;     // Share of worker groups that fail by themselves.
  int done_percent = 0;        // Share of worker groups that succeed by themselves.
  int slow_stop_percent = 0;   // Share of worker groups that take up to 2 s to stop.
  int store_fails_percent = 0;
  Duration host_cost{};  // CPU time of the host for one message.

  // True if the job needs all of its nodes and has no spare.
  bool is_fixed() const { return nodes_min == nodes_max; }

  // Longest time from the last fault to a common epoch or a common end (see membership_sim.h).
  Duration bound() const;
};

Plan plan_for(uint64_t seed);
// One round of this many nodes, all started at once, without faults.
Plan plan_for_scale(int nodes);
std::string to_text(const Plan& plan);

}  // namespace muster::roundsim
