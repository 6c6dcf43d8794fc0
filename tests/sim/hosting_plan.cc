#include "tests/sim/hosting_plan.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "rendezvous/base/prng.h"
#include "tests/transcripts/seconds.h"

namespace muster::hostsim {

using std::chrono::milliseconds;
using std::chrono::seconds;

Duration Plan::bound() const {
  return join_timeout + last_call + 6 * lease + 5 * keeper_lease + seconds{10};
}

Plan plan_for(uint64_t seed) {
  Prng prng(seed ^ 0x4057u);
  const auto one_of = [&prng](auto... values) {
    const std::array choices{values...};
    return choices[prng.below(choices.size())];
  };
  Plan plan;
  plan.seed = seed;
  plan.nodes = 2 + static_cast<int>(prng.below(5));
  plan.nodes_max = prng.chance(1, 4) ? std::max(1, plan.nodes - 1) : plan.nodes;
  plan.nodes_min = plan.nodes_max;
  if (prng.chance(3, 4)) {
    plan.nodes_min = 1 + static_cast<int>(prng.below(static_cast<uint64_t>(plan.nodes_max)));
  }
  plan.max_restarts = one_of(0, 1, 3, 10);
  if (prng.chance(1, 6)) plan.max_membership_changes = one_of(0, 1, 3);
  plan.last_call = milliseconds{one_of(100, 1000, 5000)};
  plan.join_timeout = seconds{one_of(20, 30, 60)};
  plan.lease = milliseconds{one_of(600, 1000, 3000)};
  plan.keeper_ends_leases = prng.chance(1, 2);
  plan.fixed_ports = prng.chance(1, 3);
  plan.keeper_lease = milliseconds{one_of(1000, 1000, 2000, 4000)};
  plan.beat_every = plan.keeper_lease / 4;
  plan.lost_percent = one_of(0, 0, 5, 20);
  plan.delayed_percent = one_of(0, 0, 5, 20, 40);
  plan.late_watch_percent = one_of(0, 10, 50);
  plan.late_lease_percent = one_of(0, 50);
  plan.horizon = milliseconds{500 + prng.below(prng.chance(1, 3) ? 4000 : 30000)};
  plan.faults = one_of(0, 1, 3, 8, 16);
  plan.late_percent = one_of(0, 30, 60);
  plan.slow_percent = one_of(0, 0, 2, 20);
  plan.failing_percent = one_of(0, 0, 10, 40);
  plan.done_percent = one_of(0, 0, 20, 80);
  plan.slow_stop_percent = one_of(0, 10, 50);
  plan.store_fails_percent = one_of(0, 0, 0, 0, 3);
  return plan;
}

std::string to_text(const Plan& plan) {
  const std::string changes = plan.max_membership_changes
                                  ? fmt::format("{}", *plan.max_membership_changes)
                                  : std::string("any number of");
  return fmt::format(
      "seed {}: {} nodes for {}:{}, {} restarts, {} membership changes; lease {}, last call {}, "
      "join time-out {}; a keeper {} leases of {}{}, {}% of answers lost, {}% of requests late, "
      "{}% of watches late, {}% of leases late; {} faults until {}; {}% late, {}% slow, {}% fail, "
      "{}% done, {}% slow to stop, {}% of stores fail",
      plan.seed, plan.nodes, plan.nodes_min, plan.nodes_max, plan.max_restarts, changes,
      seconds_text(plan.lease), seconds_text(plan.last_call), seconds_text(plan.join_timeout),
      plan.keeper_ends_leases ? "that ends" : "whose readers watch",
      seconds_text(plan.keeper_lease), plan.fixed_ports ? ", fixed ports" : "", plan.lost_percent,
      plan.delayed_percent, plan.late_watch_percent, plan.late_lease_percent, plan.faults,
      seconds_text(plan.horizon), plan.late_percent, plan.slow_percent, plan.failing_percent,
      plan.done_percent, plan.slow_stop_percent, plan.store_fails_percent);
}

}  // namespace muster::hostsim
