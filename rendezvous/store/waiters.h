// The clients that wait for keys, at most one waiter per connection (the protocol cannot tell two
// apart). A waiter holds one link per missing key; the links of a key form a list in order of
// arrival. So a wake-up, a cancellation or a hang-up costs as much as that waiter has links. Pure;
// owned by the StoreMachine.
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
  all,       // A value was written: wakes all waiters.
  existing,  // The key exists, but its barrier is incomplete: wakes all but those at the barrier.
  one,       // A queue got an item: wakes the longest waiting that misses only this name.
};

class Waiters {
 public:
  explicit Waiters(uint64_t hash_seed);
  Waiters(Waiters&&) = delete;
  ~Waiters();

  // Parks `id` until all of `missing` exist; replaces its previous wait. Ignores duplicates.
  // REQUIRES: not empty.
  void park(ClientId id, const std::vector<std::string_view>& missing);
  void park_at_barrier(ClientId id, std::string_view name);

  // No-op if it does not wait.
  void forget(ClientId id);

  // Marks `name` as present; appends and forgets the waiters that miss no other name.
  void wake(std::string_view name, WakeKind kind, std::vector<ClientId>& woken);

  // Calls each(id, at_barrier, first, missing) for all, by id. `first`: the first of the `missing`
  // names in the order of the request, `first_max` at most.
  template <typename Each>
  void for_each(size_t first_max, const Each& each) const {
    for (const std::unique_ptr<Waiter>& waiter : waiters_) {
      if (!waiter) continue;
      std::vector<std::string_view> first;
      for (const Link& link : waiter->links) {
        if (first.size() == first_max) break;
        if (link.line != nullptr) first.push_back(*link.line->name);
      }
      each(waiter->id, waiter->at_barrier, first, waiter->missing);
    }
  }

  size_t waiting() const { return waiting_; }
  bool empty() const { return waiting_ == 0; }
  // Returns the approximate memory of all waiters.
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
  // The waiters for one name, longest waiting first; never empty.
  struct Line {
    const std::string* name = nullptr;
    Link* first = nullptr;
    Link* last = nullptr;
  };
  struct Waiter {
    ClientId id = 0;
    bool at_barrier = false;
    size_t missing = 0;
    std::vector<Link> links;  // Reserved in full: Line and Link point into it.
  };
  using Lines = std::unordered_map<std::string, Line, KeyedHash, std::equal_to<>>;

  Waiter& new_waiter(ClientId id, size_t names);
  void link(Waiter& waiter, std::string_view name);
  void unlink(Link& link);
  void drop_if_empty(const Line& line);
  void remove(const Waiter& waiter);

  Lines lines_;
  std::vector<std::unique_ptr<Waiter>> waiters_;  // Indexed by ClientId; null: not waiting.
  size_t waiting_ = 0;
  size_t bytes_ = 0;
};

}  // namespace muster
