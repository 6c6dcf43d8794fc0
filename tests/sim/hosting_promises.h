// The promises of Hosting (see hosting.h), checked against the truth of the simulated world: the
// keeper's content decides, and each change of it is checked before any node learns of it. The
// promises of a single host are in membership_promises.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "rendezvous/backends/host_record.h"
#include "rendezvous/base/time.h"
#include "rendezvous/membership/agent_protocol.h"
#include "tests/sim/hosting_plan.h"

namespace muster::hostsim {

class World;
class SimKeeper;

// A node's grounds for taking a host's place.
struct Claim {
  Duration age{};  // Age of the host's newest beat when the keeper answered the node's last poll.
  // Instance of the last call, if its address refused or another instance answered there.
  uint64_t refused_by = 0;
  bool returns = false;  // True if the node is the host, but its lease was over.
};

class HostingPromises {
 public:
  HostingPromises(const Plan& plan, const World& world) : plan_(plan), world_(world) {}

  // A take that the keeper has just granted; the last three members are from just before.
  struct Take {
    int node = 0;
    Claim claim;
    HostRecord own;
    std::optional<HostRecord> before;
    Instant last_beat{};
    Instant gone_since{};
  };
  void taken(Instant now, const Take& take);
  void written(const HostRecord& own, const std::optional<HostRecord>& host,
               const JobRecord& before, const JobRecord& record);
  void granted(int node, uint64_t instance, membership::Epoch epoch);
  void stepped_down(int node);
  void ending_granted(int node);
  // A node receives its round from the host of this instance.
  void round_formed(int node, uint64_t instance, const membership::Round& round);

  void violate(std::string promise) {
    if (!broken_) broken_ = std::move(promise);
  }
  const std::optional<std::string>& broken() const { return broken_; }

  // Totals of a run, which show what its seed reached.
  struct Reached {
    int rounds = 0;
    int followed_as_member = 0;
    int followed_as_stranger = 0;
    int followed_on_machine = 0;
    int returned = 0;  // Hosts that took their place again after their lease was over.
    int stepped_down = 0;
    int found_written = 0;   // Rounds whose write was not answered.
    int told_by_keeper = 0;  // Nodes that learned of the end from the keeper.
  };
  Reached& reached() { return reached_; }
  const Reached& reached() const { return reached_; }

 private:
  void check(bool holds, const std::string& promise) {
    if (!holds) violate(promise);
  }
  bool may_follow(Instant now, const Take& take);
  bool is_well(Instant now, const HostRecord& host) const;

  const Plan& plan_;
  const World& world_;
  std::optional<std::string> broken_;
  Reached reached_;

  int generation_ = 0;
  bool begun_anew_ = false;  // True once a non-member has begun the job anew, at a file.
  std::map<membership::Epoch, uint64_t> written_;  // Instance by epoch; of this generation.
  std::map<std::pair<uint64_t, membership::Epoch>, JobRecord> records_;
  std::set<std::pair<uint64_t, membership::Epoch>> granted_;
  // Agents since whose last take another node took the host's place or wrote the job's record.
  std::set<membership::AgentId> superseded_;
  struct Seat {
    membership::AgentId agent;
    membership::Epoch epoch = 0;
    int rank = 0;
    int nodes = 0;
    int generation = 0;  // The keeper's.
  };
  std::map<int, Seat> seats_;  // By node.
};

}  // namespace muster::hostsim
