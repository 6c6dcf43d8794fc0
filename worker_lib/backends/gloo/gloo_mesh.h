// The Gloo connections between the members of one group: Gloo's own mesh of TCP pairs, set up
// through our set-up store, plus what Gloo lacks.
//
// - Gloo's epoll thread moves the bytes; a caller sleeps in Gloo until its operation is done or its
//   own time-out has passed. Gloo has no way to end such a call from outside: closing the
//   connections does not wake it. But when any wait on a context times out, Gloo fails all pairs of
//   that context and wakes every waiting thread. interrupt() makes such a wait, of a millisecond,
//   for a message that no rank sends.
// - A pair that lost its connection refuses new receives, so lost_peers() posts one on each.
//
// Threads: any, except for connect().
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gloo/context.h>

#include "worker_lib/backends/backend.h"
#include "worker_lib/failure.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// The time until the deadline, rounded up and at most a week, since longer ones overflow in Gloo.
// Zero or less: the deadline has passed.
std::chrono::milliseconds gloo_time_left(Deadline deadline);

// "Connection closed by peer [10.0.0.2]:4711": the text of Gloo's exception without source lines.
std::string gloo_reason(const char* what);
// Whether the reason is a wait that timed out, which makes the mesh unusable.
bool is_gloo_timeout(const std::string& reason);

// Message slots that do not collide with Gloo's own collectives, which use the prefixes 1 to 8 in
// bits 40 to 47, a tag in bits 8 to 39 and the remaining bits themselves.
enum class GlooSlots : uint64_t {
  messages = 0x40,
  scatter = 0x41,
  gather = 0x42,
  probe = 0x43,
  roll_call = 0x44,
};
constexpr uint64_t gloo_slot(GlooSlots use, uint64_t tag) {
  return static_cast<uint64_t>(use) << 40 | (tag & 0xffffffff) << 8;
}

class GlooMesh : public ::gloo::Context {
 public:
  // Blocks until all members are connected. Fails with timeout (naming the missing ranks),
  // peer_failed, rendezvous, system, backend, or what setup.interrupted returns.
  static Outcome<std::shared_ptr<GlooMesh>> connect(GroupSetup& setup);

  GlooMesh(int my_rank, int ranks) : ::gloo::Context(my_rank, ranks) {}

  // Ends every blocked and later call on this mesh with an exception, within milliseconds; peers
  // see their connections to this rank closed. REQUIRES: size > 1.
  void interrupt();

  // Group ranks with a lost connection.
  std::vector<int> lost_peers();

 private:
  std::string open_pairs(const std::string& address, std::chrono::milliseconds timeout);
  Outcome<> connect_pairs(const GroupSetup& setup, const std::vector<std::string>& addresses);
};

}  // namespace muster::worker
