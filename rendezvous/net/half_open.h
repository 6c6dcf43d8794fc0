// The connections of a listener that have not proved who they are, and which of them goes when
// places are short: the oldest one of the largest group. A group is what comes from one machine and
// has, or has not, said that it is an agent; the silent ones count four times. So a flood pushes
// out its own, silence goes before words, and newcomers always get a place for a while. Addresses
// of one loopback network or of one IPv6 /64 are one machine: whoever has one of them has all.
// Pure.
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

// The first address of the block that one machine may use at will.
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
  // It says that it is an agent. No effect on an unknown one.
  void said_agent(Id id);
  // It has proved who it is, or is gone. No effect on an unknown one.
  void remove(Id id);

  size_t size() const { return entries_.size(); }
  // The one that goes next; nullopt: there is none.
  std::optional<std::pair<Id, Entry>> next_out() const;

 private:
  using Group = std::pair<IpAddress, bool>;  // Of which machine; has said that it is an agent.
  // Ordered by size, then by age: the last one goes first.
  using Rank = std::tuple<size_t, Id, Group>;

  struct Known {
    Entry entry;
    Group group;
  };

  static Rank rank_of(const Group& group, const std::set<Id>& members);
  void enter(Id id, const Group& group);
  void leave(Id id, const Group& group);

  std::map<Id, Known> entries_;
  std::map<Group, std::set<Id>> groups_;  // None is empty.
  std::set<Rank> ranks_;                  // One for each group.
};

}  // namespace muster
