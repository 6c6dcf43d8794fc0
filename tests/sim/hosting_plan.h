// The parameters of a simulated job that meets through a keeper: everything random that is not
// decided during the run, drawn from one seed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/base/time.h"

namespace muster::hostsim {

struct Plan {
  uint64_t seed = 0;

  int nodes = 2;  // One per machine; any of them may host.
  int nodes_min = 2;
  int nodes_max = 2;
  int max_restarts = 0;
  std::optional<int> max_membership_changes;
  Duration last_call{};
  Duration join_timeout{};
  Duration lease{};  // Lease between the nodes and their host.

  bool keeper_ends_leases = false;  // As etcd does; else a file, whose readers watch the beat.
  bool fixed_ports = false;         // Every host on a machine listens at the same port.
  Duration keeper_lease{};
  Duration beat_every{};
  int lost_percent = 0;        // Share of the keeper's answers that are lost.
  int delayed_percent = 0;     // Share of requests that reach the keeper up to 4 s late.
  int late_watch_percent = 0;  // Share of watches that fire up to a second late.
  int late_lease_percent = 0;  // Share of leases that the keeper ends up to a second late.

  Duration horizon{};         // Time until faults stop.
  int faults = 0;             // Number of external faults until then.
  int late_percent = 0;       // Share of nodes that start some time after the first.
  int slow_percent = 0;       // Share of messages that take up to 200 ms instead of 2.
  int failing_percent = 0;    // Share of worker groups that fail by themselves.
  int done_percent = 0;       // Share of worker groups that succeed by themselves.
  int slow_stop_percent = 0;  // Share of worker groups that take up to 2 s to stop.
  int store_fails_percent = 0;

  // Longest time from the last fault to a common epoch or a common end (see hosting_sim.h).
  Duration bound() const;
};

Plan plan_for(uint64_t seed);
std::string to_text(const Plan& plan);

}  // namespace muster::hostsim
