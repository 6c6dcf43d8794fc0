#include "tests/sim/hosting_promises.h"

#include <algorithm>

#include <fmt/format.h>

#include "tests/sim/hosting_world.h"

namespace muster::hostsim {

using membership::AgentId;

// ---- The choice of the host.

void HostingPromises::taken(Instant now, const Take& take) {
  const bool is_own = take.before && take.before->agent == take.own.agent;
  const bool returns = take.claim.returns;
  if (!take.before || is_own) {
    reached_.returned += returns;
  } else {
    check(!is_well(now, *take.before) || world_.keeper().job().has(take.own.agent),
          fmt::format("no stranger (node {}) deposes a host that has all its members", take.node));
  }
  check(!world_.keeper().job().ending,
        fmt::format("node {} hosts no job that has ended", take.node));
  check(is_own || may_follow(now, take),
        fmt::format("node {} follows only a host that is dead or whose lease is over", take.node));
  for (int node = 0; node < world_.nodes(); ++node)
    superseded_.insert(world_.node(node).agent);
  superseded_.erase(take.own.agent);
}

// See hosting.h. A reader of beats cannot know of those after its last poll.
bool HostingPromises::may_follow(Instant now, const Take& take) {
  const JobRecord& job = world_.keeper().job();
  const bool is_member = job.has(take.own.agent);
  if (take.before && take.claim.refused_by == take.before->instance) {
    if (is_member) return ++reached_.followed_as_member, true;
    const bool is_here = take.before->machine == take.own.machine;
    if (is_here && !world_.is_host_process_alive(*take.before)) {
      return ++reached_.followed_on_machine, true;
    }
  }
  const Duration lease = plan_.keeper_lease;
  if (!take.before) {
    if (job.epoch == 0 || take.claim.returns) return true;
    if (is_member) return ++reached_.followed_as_member, true;
    ++reached_.followed_as_stranger;
    return now - take.gone_since >= 2 * lease;
  }
  if (plan_.keeper_ends_leases) return false;
  const Duration age = std::max(take.claim.age, now - take.last_beat);
  if (job.epoch == 0 || is_member) return age >= lease;
  ++reached_.followed_as_stranger;
  return age >= 3 * lease;
}

// True if it has long had no trouble with the keeper and each member of its round is connected.
bool HostingPromises::is_well(Instant now, const HostRecord& host) const {
  const Node& node = world_.node(World::index_of(host.agent));
  const JobRecord& job = world_.keeper().job();
  if (!world_.is_host_process_alive(host) || !node.host || job.instance != host.instance) {
    return false;
  }
  if (now - node.disturbed_until < 3 * plan_.keeper_lease) return false;
  return std::ranges::all_of(job.members, [&](const AgentId& member) {
    return world_.is_connected(member, host.instance);
  });
}

void HostingPromises::stepped_down(int node) {
  ++reached_.stepped_down;
  check(superseded_.contains(world_.node(node).agent),
        fmt::format("node {} steps down only for another host", node));
}

void HostingPromises::ending_granted(int index) {
  const bool is_its = !superseded_.contains(world_.node(index).agent);
  const JobRecord& job = world_.keeper().job();
  check(!is_its || job.ending || job == JobRecord{}, "a job ends only once the keeper knows it");
}

// ---- Rounds.

void HostingPromises::written(const HostRecord& own, const std::optional<HostRecord>& host,
                              const JobRecord& before, const JobRecord& record) {
  const int node = World::index_of(own.agent);
  check(host && host->instance == own.instance,
        fmt::format("only the host that the keeper names writes a round (node {})", node));
  if (std::exchange(generation_, world_.keeper().generation()) != world_.keeper().generation()) {
    written_.clear();
  }
  for (int other = 0; other < world_.nodes(); ++other) {
    if (other != node) superseded_.insert(world_.node(other).agent);
  }
  if (record.ending) return;
  ++reached_.rounds;
  // A host from outside the round knows no epochs beyond those of the nodes that join it.
  if (!plan_.keeper_ends_leases && before.epoch > 0 && !before.has(own.agent)) begun_anew_ = true;
  if (begun_anew_ && record.epoch <= before.epoch) written_.clear();
  check(begun_anew_ || record.epoch > before.epoch, "epochs only grow");
  check(record.instance == own.instance && record.host == own.agent,
        "a host writes its own rounds");
  check(written_.emplace(record.epoch, own.instance).second, "an epoch is given once");
  records_[{own.instance, record.epoch}] = record;
  check(record.restarts <= plan_.max_restarts, "restarts stay within the budget");
  check(!plan_.max_membership_changes || record.changes <= *plan_.max_membership_changes,
        "membership changes stay within the budget");
  if (world_.job_ended() || generation_ > 0 || begun_anew_)
    return;  // A node may know of earlier rounds.
  const auto rounds = static_cast<uint64_t>(record.restarts + record.changes) + 1;
  check(rounds == record.epoch,
        fmt::format("each round after the first is paid for once: epoch {} after {} restarts and "
                    "{} changes",
                    record.epoch, record.restarts, record.changes));
}

void HostingPromises::granted(int node, uint64_t instance, membership::Epoch epoch) {
  check(records_.contains({instance, epoch}),
        fmt::format("a round (epoch {} of node {}) is granted once it is written", epoch, node));
  check(granted_.emplace(instance, epoch).second, "a round is granted once");
}

void HostingPromises::round_formed(int index, uint64_t instance, const membership::Round& round) {
  const Node& node = world_.node(index);
  check(!node.workers_alive,
        fmt::format("no old worker is alive where a round begins ({})", index));
  check(granted_.contains({instance, round.epoch}),
        fmt::format("a round (epoch {}) is sent only after it is granted", round.epoch));
  const JobRecord& record = records_[{instance, round.epoch}];
  const auto rank = static_cast<size_t>(round.node_rank);
  check(rank < record.members.size() && record.members[rank] == node.agent &&
            static_cast<int>(record.members.size()) == round.nodes,
        "the keeper knows the members of a round by their ranks");
  check(record.restarts == round.restarts && record.changes == round.changes,
        "the keeper knows what a round has cost");
  const auto seat = seats_.find(index);
  if (seat != seats_.end() && seat->second.agent == node.agent) {
    const Seat& last = seat->second;
    check(round.epoch > last.epoch, "a node's epochs only grow");
    const bool is_next =
        round.epoch == last.epoch + 1 && last.generation == world_.keeper().generation();
    check(!is_next || begun_anew_ || round.nodes < last.nodes || round.node_rank == last.rank,
          fmt::format("node {} keeps its rank", index));
  }
  seats_[index] = {node.agent, round.epoch, round.node_rank, round.nodes,
                   world_.keeper().generation()};
}

}  // namespace muster::hostsim
