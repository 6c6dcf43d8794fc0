// How far the ranks of a group have come with its collectives, for backends that cannot know: asked
// when an operation missed its deadline. On every rank a thread waits at the store (nothing is
// polled; it costs a connection) and answers whatever the other threads do. So a rank that computes
// or is stuck elsewhere says how far it has come, and only a process that is stopped or gone says
// nothing. It answers once: the group is of no use after that.
//
// Owned by a backend's group; any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "rendezvous/store/store_client.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"

namespace muster::worker {

class Arrivals {
 public:
  // A new connection to keys that are for this alone.
  using Connect = std::function<Outcome<StoreClient>(Deadline)>;

  // Connects and begins to listen. Fails as `connect` does.
  static Outcome<std::unique_ptr<Arrivals>> start(Members members, Connect connect,
                                                  Deadline deadline);
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;
  ~Arrivals();

  // This rank begins that collective. Costs a nanosecond.
  void begin(uint64_t sequence) { begun_.store(sequence, std::memory_order_relaxed); }

  // A failure of code timeout that says which ranks have not come to that collective and which do
  // not answer. Blocks, at most until then.
  Failure explain(uint64_t sequence, Deadline until);

 private:
  Arrivals(Members members, Connect connect, StoreClient store);

  void listen();
  Failure explain(StoreClient& store, uint64_t sequence, Deadline until);

  const Members members_;
  const Connect connect_;
  StoreClient store_;  // Of the thread, but for hang_up().
  std::atomic<uint64_t> begun_{0};
  std::thread thread_;
};

}  // namespace muster::worker
