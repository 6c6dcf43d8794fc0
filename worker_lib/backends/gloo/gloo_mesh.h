// The Gloo connections between the members of one group: Gloo's own mesh of TCP pairs, set up
// through our store, plus two functions that Gloo lacks.
//
// - interrupt(): a caller sleeps in Gloo until its operation is done or times out, while Gloo's
//   epoll thread moves the bytes. Nothing ends such a call from outside, not even closing the
//   connections. But when any wait on a context times out, Gloo fails all pairs of that context and
//   wakes every waiting thread. So we wait a millisecond for a message that no rank sends.
// - lost_peers(): a pair that lost its connection refuses new receives, so we post one on each.
//
// Any thread may call anything, except for connect().
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gloo/context.h>

#include "worker_lib/backends/backend.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// Time until the deadline, rounded up; at most a week (longer overflows in Gloo); may be negative.
std::chrono::milliseconds gloo_time_left(Deadline deadline);

// Text of a Gloo exception without source lines: "Connection closed by peer [10.0.0.2]:4711".
std::string gloo_reason(const char* what);
// True if the reason is a wait that timed out, which makes the mesh unusable.
bool is_gloo_timeout(const std::string& reason);

// Prefixes of message slots that do not collide with those of Gloo's own collectives, which have 1
// to 8 in bits 40 to 47, a tag in bits 8 to 39, and use the remaining bits themselves.
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
  // peer_failed, rendezvous, system, backend, or the failure from setup.interrupted.
  static Outcome<std::shared_ptr<GlooMesh>> connect(GroupSetup& setup);

  GlooMesh(int my_rank, int ranks) : ::gloo::Context(my_rank, ranks) {}

  // Ends every blocked and later call on this mesh with an exception, within milliseconds; peers
  // see their connections to this rank closed. REQUIRES: size > 1.
  void interrupt();

  std::vector<int> lost_peers();

 private:
  std::string open_pairs(const std::string& address, std::chrono::milliseconds timeout);
  Outcome<> connect_pairs(const GroupSetup& setup, const std::vector<std::string>& addresses);
};

// Runs our collective as Gloo calls (gloo_collectives.cc). Blocks until this rank's result is in
// place. Throws Gloo's exceptions. One call at a time. REQUIRES: mesh->size > 1, a positive
// time-out, and a completed roll call, so that all ranks make this call; a barrier needs nothing
// more.
void run_on_gloo(const std::shared_ptr<GlooMesh>& mesh, const Operation& operation,
                 std::chrono::milliseconds timeout);

// The roll call before every collective (gloo_roll_call.cc). Blocks until all ranks have arrived
// with the same call. Fails with mismatch (naming the ranks that differ from most) or timeout
// (naming the missing ranks; the mesh is then unusable). Throws Gloo's exception if a connection is
// lost. REQUIRES: mesh->size > 1.
Outcome<> call_the_roll(const std::shared_ptr<GlooMesh>& mesh, const Members& members,
                        const Operation& operation, Deadline deadline);

}  // namespace muster::worker
