// Who waits for which keys: the half of the store that a SET looks at. Each connection has at most
// one waiter (the protocol cannot tell two apart); a waiter holds one link per missing key, and the
// links of a key form a list in order of arrival. So a wake-up, a cancellation and a hang-up cost
// what that waiter has links, whatever else there is. Pure; owned by the StoreMachine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rendezvous/store/keyed_hash.h"

namespace muster {

using ClientId = uint32_t;

enum class WakeKind {
  all,       // A value was written: everyone who is parked on the name.
  existing,  // The name exists now, but its barrier is not complete: all but the barrier's.
  one,       // A queue got an item: the longest waiting whose last missing name this is.
};

class Waiters {
 public:
  explicit Waiters(uint64_t hash_seed);
  Waiters(const Waiters&) = delete;
  Waiters& operator=(const Waiters&) = delete;
  ~Waiters();

  // Parks `id` until each of `missing` has come; whatever it waited for before is forgotten.
  // Duplicates are harmless. REQUIRES: at least one name.
  void park(ClientId id, const std::vector<std::string_view>& missing);
  void park_at_barrier(ClientId id, std::string_view name);

  // Nothing, if it does not wait.
  void forget(ClientId id);

  // Counts `name` off and appends those who miss nothing any more, who are thereby forgotten.
  void wake(std::string_view name, WakeKind kind, std::vector<ClientId>& woken);

  size_t waiting() const { return waiting_; }
  bool empty() const { return waiting_ == 0; }
  // Roughly what the waiting costs in memory.
  size_t bytes() const { return bytes_; }

 private:
  struct Waiter;
  struct Line;
  struct Link {
    Link* before = nullptr;
    Link* after = nullptr;
    Line* line = nullptr;  // Null once the name has been counted off.
    Waiter* waiter = nullptr;
  };
  // All who wait for one name, longest first; never empty.
  struct Line {
    const std::string* name = nullptr;
    Link* first = nullptr;
    Link* last = nullptr;
  };
  struct Waiter {
    ClientId id = 0;
    bool at_barrier = false;
    size_t missing = 0;
    std::vector<Link> links;  // Never grows once linked: others point into it.
  };
  using Lines = std::unordered_map<std::string, Line, KeyedHash, std::equal_to<>>;

  Waiter& new_waiter(ClientId id, size_t names);
  void link(Waiter& waiter, std::string_view name);
  void unlink(Link& link);
  void drop_if_empty(const Line& line);
  void remove(const Waiter& waiter);

  Lines lines_;
  std::vector<std::unique_ptr<Waiter>> waiters_;  // By ClientId; null: does not wait.
  size_t waiting_ = 0;
  size_t bytes_ = 0;
};

}  // namespace muster
