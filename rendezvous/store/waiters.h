// The clients that wait for keys: the half of the store that a SET consults. Each connection has at
// most one waiter (the protocol cannot tell two apart). A waiter holds one link per missing key,
// and the links of a key form a list in order of arrival. So the cost of a wake-up, a cancellation
// or a hang-up depends only on the number of that waiter's links. Pure; owned by the StoreMachine.
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
  all,       // A value was written: wakes all that are parked on the name.
  existing,  // The name exists now, but its barrier is incomplete: all but the barrier's.
  one,       // A queue got an item: the longest waiting that misses only this name.
};

class Waiters {
 public:
  explicit Waiters(uint64_t hash_seed);
  Waiters(const Waiters&) = delete;
  Waiters& operator=(const Waiters&) = delete;
  ~Waiters();

  // Parks `id` until each of `missing` exists; replaces its previous wait. Duplicates are harmless.
  // REQUIRES: at least one name.
  void park(ClientId id, const std::vector<std::string_view>& missing);
  void park_at_barrier(ClientId id, std::string_view name);

  // No effect if it does not wait.
  void forget(ClientId id);

  // Marks `name` as present; appends and forgets the waiters that miss nothing any more.
  void wake(std::string_view name, WakeKind kind, std::vector<ClientId>& woken);

  size_t waiting() const { return waiting_; }
  bool empty() const { return waiting_ == 0; }
  // The approximate memory cost of all waiters.
  size_t bytes() const { return bytes_; }

 private:
  struct Waiter;
  struct Line;
  struct Link {
    Link* before = nullptr;
    Link* after = nullptr;
    Line* line = nullptr;  // Null once the name is present.
    Waiter* waiter = nullptr;
  };
  // All waiters for one name, longest waiting first; never empty.
  struct Line {
    const std::string* name = nullptr;
    Link* first = nullptr;
    Link* last = nullptr;
  };
  struct Waiter {
    ClientId id = 0;
    bool at_barrier = false;
    size_t missing = 0;
    std::vector<Link> links;  // Never grows once linked: Line and Link point into it.
  };
  using Lines = std::unordered_map<std::string, Line, KeyedHash, std::equal_to<>>;

  Waiter& new_waiter(ClientId id, size_t names);
  void link(Waiter& waiter, std::string_view name);
  void unlink(Link& link);
  void drop_if_empty(const Line& line);
  void remove(const Waiter& waiter);

  Lines lines_;
  std::vector<std::unique_ptr<Waiter>> waiters_;  // By ClientId; null: not waiting.
  size_t waiting_ = 0;
  size_t bytes_ = 0;
};

}  // namespace muster
