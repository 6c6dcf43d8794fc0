// The rings in which this node's workers record their calls (rendezvous/ring/ring_layout.h). Each
// is made just before its worker is spawned and can be read until the next attempt, even if the
// worker has died. Only the memory is kept: the descriptor is closed once the worker has inherited
// it, so all workers find theirs under one number, and a node of 200 workers needs one more
// descriptor, not 200.
//
// No job fails for a ring: a worker for which none can be made does without. Owned by the agent's
// loop; control loop only.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/hang/ring_reader.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/ring/record_fd.h"

namespace muster {

class Rings {
 public:
  // Makes no rings unless `wanted`. `say` gets, once, the reason why one cannot be made. Best
  // called while the process has one thread, since it takes the number of the rings' descriptors
  // for a moment.
  Rings(bool wanted, std::function<void(const std::string&)> say);

  bool wanted() const { return wanted_; }

  // Frees the rings of the attempt before.
  void begin_attempt(int workers);
  // The ring of the worker to be spawned next; nullopt: it gets none.
  std::optional<ring::RecordFd> make(int local_rank);
  // Call once the worker has its ring or could not be spawned.
  void close_descriptor() { fd_.reset(); }

  // The job's end is near: its ranks see it, those of later attempts too.
  void warn();

  // nullptr: the worker has no ring.
  const RingReader* reader(int local_rank) const;

 private:
  bool wanted_;
  std::function<void(const std::string&)> say_;
  bool said_ = false;
  bool warned_ = false;
  UniqueFd fd_;                                     // The last ring's.
  std::vector<std::optional<RingReader>> readers_;  // By local rank.
};

}  // namespace muster
