#include "tests/sim/membership_plan.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "rendezvous/base/prng.h"
#include "tests/transcripts/seconds.h"

namespace muster::roundsim {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

int draw_nodes(Prng& prng) {
  if (prng.chance(1, 300)) return 50;
  if (prng.chance(1, 20)) return 9 + static_cast<int>(prng.below(8));
  return 2 + static_cast<int>(prng.below(7));
}

}  // namespace

Duration Plan::bound() const {
  return join_timeout + last_call + 6 * lease + seconds{5};
}

Plan plan_for(uint64_t seed) {
  Prng prng(seed);
  const auto one_of = [&prng](auto... values) {
    const std::array choices{values...};
    return choices[prng.below(choices.size())];
  };
  Plan plan;
  plan.seed = seed;
  plan.nodes = draw_nodes(prng);
  plan.nodes_max = prng.chance(1, 4) ? std::max(1, plan.nodes - 1) : plan.nodes;
  plan.nodes_min = plan.nodes_max;
  if (prng.chance(1, 2)) {
    plan.nodes_min = 1 + static_cast<int>(prng.below(static_cast<uint64_t>(plan.nodes_max)));
  }
  plan.explicit_ranks = plan.nodes_max == plan.nodes && prng.chance(1, 3);
  plan.slots_max = one_of(1, 2, 3);
  plan.max_restarts = one_of(0, 1, 2, 3);
  if (prng.chance(1, 4)) plan.max_membership_changes = one_of(0, 1, 3);
  plan.lease = milliseconds{one_of(600, 1000, 3000)};
  if (plan.is_fixed() && prng.chance(1, 2)) plan.lease = seconds{one_of(5, 15)};
  plan.last_call = milliseconds{one_of(100, 1000, 5000)};
  plan.join_timeout = seconds{one_of(10, 20, 30)};
  plan.horizon = milliseconds{500 + prng.below(prng.chance(1, 2) ? 3000 : 20000)};
  plan.faults = one_of(0, 1, 3, 8, 16);
  plan.late_percent = one_of(0, 0, 30, 60);
  plan.slow_percent = one_of(0, 0, 2, 20);
  plan.unreliable_percent = one_of(0, 0, 0, 5, 20);
  plan.failing_percent = one_of(0, 0, 10, 40);
  plan.done_percent = one_of(0, 20, 80);
  plan.slow_stop_percent = one_of(0, 10, 50);
  plan.store_fails_percent = one_of(0, 0, 0, 0, 5);
  plan.may_be_followed = prng.chance(1, 4);
  return plan;
}

Plan plan_for_scale(int nodes) {
  Plan plan;
  plan.seed = 1;
  plan.nodes = plan.nodes_min = plan.nodes_max = nodes;
  plan.slots_max = 8;
  plan.last_call = seconds{30};
  plan.join_timeout = seconds{600};
  plan.lease = seconds{3};
  plan.horizon = seconds{5};
  // The real host needs less per message, sockets included.
  plan.host_cost = microseconds{20};
  return plan;
}

std::string to_text(const Plan& plan) {
  const std::string changes = plan.max_membership_changes
                                  ? fmt::format("{}", *plan.max_membership_changes)
                                  : std::string("any number of");
  return fmt::format(
      "seed {}: {} nodes for {}:{}{}, up to {} slots, {} restarts, {} membership changes; lease "
      "{}, last call {}, join time-out {}; {} faults until {}; {}% late, {}% slow, "
      "{}% unreliable, {}% fail, {}% done, {}% slow to stop, {}% of stores fail",
      plan.seed, plan.nodes, plan.nodes_min, plan.nodes_max,
      plan.explicit_ranks ? " with ranks" : "", plan.slots_max, plan.max_restarts, changes,
      seconds_text(plan.lease), seconds_text(plan.last_call), seconds_text(plan.join_timeout),
      plan.faults, seconds_text(plan.horizon), plan.late_percent, plan.slow_percent,
      plan.unreliable_percent, plan.failing_percent, plan.done_percent, plan.slow_stop_percent,
      plan.store_fails_percent);
}

}  // namespace muster::roundsim
