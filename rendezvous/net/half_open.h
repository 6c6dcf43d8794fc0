// The unauthenticated connections of a listener, and the choice of the one to close when places are
// short: the oldest of the largest group. Each machine has two groups: connections that sent the
// magic, and those that have not, which count four times. So a flood evicts its own connections,
// silent ones go first, and a newcomer always gets a place for a while. The loopback addresses and
// each IPv6 /64 count as one machine, which may use all of them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "rendezvous/base/time.h"
#include "rendezvous/net/address.h"

namespace muster {

// Returns the representative address of the block (a /64, loopback) that is taken for one machine.
IpAddress machine_of(const IpAddress& address);

class HalfOpen {
 public:
  using Id = uint64_t;
  struct Entry {
    IpAddress address;
    Instant since{};
    friend bool operator==(const Entry&, const Entry&) = default;
  };

  // REQUIRES: `id` is above all earlier ones.
  void add(Id id, const IpAddress& address, Instant now);
  // Marks a connection that sent the magic. No-op if unknown.
  void said_agent(Id id);
  // Removes a connection that is authenticated or gone. No-op if unknown.
  void remove(Id id);

  size_t size() const { return entries_.size(); }
  // Returns the connection to close next; nullopt if there is none.
  std::optional<std::pair<Id, Entry>> next_out() const;

 private:
  using Group = std::pair<IpAddress, bool>;  // Machine; true if the magic was sent.
  // Weight, age of the oldest member, group: the highest rank goes first.
  using Rank = std::tuple<size_t, Id, Group>;

  struct Known {
    Entry entry;
    Group group;
  };

  static Rank rank_of(const Group& group, const std::set<Id>& members);
  void enter(Id id, const Group& group);
  void leave(Id id, const Group& group);

  std::map<Id, Known> entries_;
  std::map<Group, std::set<Id>> groups_;  // No set is empty.
  std::set<Rank> ranks_;                  // One per group.
};

}  // namespace muster
