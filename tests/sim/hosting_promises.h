// The promises of who hosts (see hosting.h), checked against the truth of the simulated world: what
// the keeper holds decides, and each change there is checked before anybody hears of it. Those of
// one host alone are checked in membership_promises.h.
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

// What a node can base it on that it takes a host's place.
struct Claim {
  Duration age{};  // Of the host's newest beat, when the keeper answered its last look.
  // The instance that was called last, if its address refused, or another one answered there.
  uint64_t refused_by = 0;
  bool returns = false;  // It is host, but its lease was over.
};

class HostingPromises {
 public:
  HostingPromises(const Plan& plan, const World& world) : plan_(plan), world_(world) {}

  // A take that the keeper has just granted: `host` and `gone_since` are of the moment before.
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
  // A node is told its round by the host of this instance.
  void round_formed(int node, uint64_t instance, const membership::Round& round);

  void violate(std::string promise) {
    if (!broken_) broken_ = std::move(promise);
  }
  const std::optional<std::string>& broken() const { return broken_; }

  // Totals of the whole run, which show what a seed reached.
  struct Reached {
    int rounds = 0;
    int followed_as_member = 0;
    int followed_as_stranger = 0;
    int followed_on_machine = 0;
    int returned = 0;  // A host whose record had gone.
    int stepped_down = 0;
    int found_written = 0;   // Rounds whose write was not answered.
    int told_by_keeper = 0;  // Nodes that heard of the end from the keeper.
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
  bool begun_anew_ = false;                        // By a stranger, at a file.
  std::map<membership::Epoch, uint64_t> written_;  // The instance, by epoch; of this generation.
  std::map<std::pair<uint64_t, membership::Epoch>, JobRecord> records_;
  std::set<std::pair<uint64_t, membership::Epoch>> granted_;
  // Agents that the keeper has once not named any more since they were host, or whose job another
  // has changed.
  std::set<membership::AgentId> superseded_;
  struct Seat {
    membership::AgentId agent;
    membership::Epoch epoch = 0;
    int rank = 0;
    int nodes = 0;
    int generation = 0;  // Of the keeper.
  };
  std::map<int, Seat> seats_;  // By node.
};

}  // namespace muster::hostsim
