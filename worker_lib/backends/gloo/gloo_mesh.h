// The Gloo connections between the members of one group: Gloo's own mesh of TCP pairs, set up
// through our store, plus three functions that Gloo lacks.
//
// - interrupt(): a caller sleeps in Gloo until its operation is done or times out, while Gloo's
//   epoll thread moves the bytes. Nothing ends such a call from outside, not even closing the
//   connections. But when any wait on a context times out, Gloo fails all pairs of that context and
//   wakes every waiting thread. So we wait a millisecond for a message that no rank sends.
// - lost_peers(): a pair that lost its connection refuses new receives, so we post one on each.
// - exchange(): a message between each two ranks.
//
// Any thread may call anything, except for connect().
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gloo/context.h>

#include "rendezvous/base/time.h"
#include "worker_lib/backends/backend_module.h"

namespace muster::worker {

inline Deadline deadline_of(const muster_module_call& call) {
  return Deadline(std::chrono::nanoseconds(call.deadline_ns));
}
// Time until the deadline, rounded up; at most a week (longer overflows in Gloo); may be negative.
std::chrono::milliseconds gloo_time_left(Deadline deadline);
// The same for a call to Gloo, which takes a millisecond at least.
std::chrono::milliseconds gloo_timeout(const muster_module_call& call);

// Text of a Gloo exception without source lines: "Connection closed by peer [10.0.0.2]:4711".
std::string gloo_reason(const char* what);
// Reports why the call fails, and returns `code`, a muster_status. An empty reason is a time-out,
// which libmuster words.
int gloo_fail(muster_module_call& call, int code, const std::string& reason = {},
              const std::vector<int>& ranks = {});
// True if the reason is a wait that timed out, which makes the mesh unusable.
bool is_gloo_timeout(const std::string& reason);

// Prefixes of message slots that do not collide with those of Gloo's own collectives, which have 1
// to 8 in bits 40 to 47, a tag in bits 8 to 39, and use the remaining bits themselves.
enum class GlooSlots : uint64_t {
  messages = 0x40,
  scatter = 0x41,
  gather = 0x42,
  probe = 0x43,
  exchange = 0x44,
};
constexpr uint64_t gloo_slot(GlooSlots use, uint64_t tag) {
  return static_cast<uint64_t>(use) << 40 | (tag & 0xffffffff) << 8;
}

class GlooMesh : public ::gloo::Context {
 public:
  // Blocks until all members are connected. Returns null after gloo_fail() with timeout,
  // peer_failed (naming the rank) or backend, or if libmuster knows the reason.
  static std::shared_ptr<GlooMesh> connect(const muster_module_setup& setup,
                                           muster_module_call& call);

  GlooMesh(int my_rank, int ranks) : ::gloo::Context(my_rank, ranks) {}

  // Ends every blocked and later call on this mesh with an exception, within milliseconds; peers
  // see their connections to this rank closed. REQUIRES: size > 1.
  void interrupt();

  std::vector<int> lost_peers();

  // As in backend_module.h, but a lost connection, or one that times out once all bytes have
  // arrived, throws Gloo's exception. After a time-out the mesh is unusable.
  int exchange(const std::byte* mine, std::byte* theirs, size_t bytes, muster_module_call& call);

 private:
  std::string open_pairs(const std::string& address, std::chrono::milliseconds timeout);
  bool connect_pairs(const muster_module_setup& setup, muster_module_call& call,
                     const std::vector<muster_module_bytes>& addresses);
};

// Performs a collective as Gloo calls (gloo_collectives.cc). Throws Gloo's exceptions.
void run_on_gloo(const muster_module_setup& setup, const std::shared_ptr<GlooMesh>& mesh,
                 const muster_operation& operation, const muster_module_call& call);

}  // namespace muster::worker
