// Joining the job: after init_process_group() this process is a rank.
//
//   #include <cstdio>
//   #include <muster/init.h>
//
//   int main() {
//     muster::init_process_group();  // From RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
//     std::printf("rank %d of %d\n", muster::rank(), muster::world_size());
//     muster::world().barrier();
//     muster::destroy_process_group();
//   }
//
// Works under muster or torchrun (env://), under mpirun or srun (whose variables give rank and
// world size), or started by hand: without a launcher a program is a world of one. A rank that ends
// without destroy_process_group(), even by returning from main(), counts as dead.
//
// If joining fails, it throws a DistributedError with one of these codes:
// - timeout: ranks are missing (failed_ranks(); includes rank 0 if its store does not answer);
// - environment: a variable is missing, malformed or contradicts another; two processes were given
//   the same rank, or ranks different world sizes or versions; the port or the meeting file cannot
//   be used or belongs to another job (the store at MASTER_ADDR:MASTER_PORT serves a different run
//   id, TORCHELASTIC_RUN_ID);
// - rendezvous: the connection to the store where the ranks meet broke, or the store is the
//   launcher's and cannot be reached;
// - invalid_argument: wrong InitOptions, or already joined; system: the kernel refused; backend:
//   InitOptions::backend is not available; peer_failed or stopped: meanwhile a rank died, or the
//   job was stopped.
//
// A process has one process group at a time; after destroy_process_group() it may initialise the
// next. Call these two from one thread at a time (a second thread that joins is refused); rank()
// and the like from any thread. In a child of fork() that did not exec, operations fail with
// ErrorCode::forked. To start ranks from inside a program see spawn.h.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "muster/error.h"
#include "muster/process_group.h"
#include "muster/types.h"

namespace muster {

// Effect of SIGTERM, which the launcher sends to all ranks when one has failed or the job ends.
enum class StopPolicy : uint8_t {
  // If the program left SIGTERM at its default: every blocked call, and every call within the next
  // second, throws ErrorCode::stopped (or peer_failed, if the reason is known); after that second
  // SIGTERM ends the process as it would have without the library. A handler that the program
  // installed before init_process_group() is left alone.
  end_calls = 0,
  // SIGTERM only makes should_stop() true (training.h); operations continue, so that all ranks can
  // agree on the step at which they stop.
  agree = 1,
  // The library leaves SIGTERM alone.
  ignore = 2,
};

struct InitOptions {
  Backend backend = Backend::automatic;

  // - "env://": RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as launchers set them; else the
  //   variables of Open MPI or Slurm; else a world of one.
  // - "tcp://host:port": rank 0 listens there; `rank` and `world_size` must be given.
  // - "file:///path": a file on a file system that all ranks see, in an existing folder; `rank` and
  //   `world_size` must be given. Rank 0 creates it and removes it when all ranks have joined; what
  //   an earlier job left in it is recognised.
  std::string init_method = "env://";

  std::optional<int> rank = {};        // Instead of RANK.
  std::optional<int> world_size = {};  // Instead of WORLD_SIZE.
  // Instead of LOCAL_RANK; if neither is given: its position among the ranks of its node.
  std::optional<int> local_rank = {};

  // Limit for joining, and for each operation unless a group or a call sets its own. The default is
  // that of torch.distributed.
  std::chrono::milliseconds timeout = std::chrono::minutes{30};

  // This rank's GPU, an index among those that this process sees; nullopt: LOCAL_RANK, or 0 if it
  // sees only one. Ignored if no GPU is used.
  std::optional<int> device = {};

  StopPolicy on_sigterm = StopPolicy::end_calls;
};

namespace detail {

inline int number_or_environment(const std::optional<int>& given, const char* name, int least) {
  if (!given) return -1;
  if (*given >= 0) return *given;
  refuse("init_process_group", std::string("InitOptions::") + name + " is " +
                                   std::to_string(*given) + ": it must be " +
                                   std::to_string(least) + " or more");
}

inline bool is_available(int (*ask)(), std::string* why) {
  if (ask() == 1) return true;
  if (why != nullptr) *why = muster_last_error_in_cpp(nullptr);
  return false;
}

}  // namespace detail

// Blocks until all ranks have joined. After 10 s, one rank per node (more while the store cannot be
// reached) prints once to standard error which are missing. Throws invalid_argument if joined.
inline void init_process_group(const InitOptions& options = {}) {
  muster_init_options given MUSTER_INIT_OPTIONS;
  given.init_method = options.init_method.c_str();
  given.timeout_ms = detail::milliseconds_from_now(options.timeout);
  given.backend = static_cast<int>(options.backend);
  given.rank = detail::number_or_environment(options.rank, "rank", 0);
  given.world_size = detail::number_or_environment(options.world_size, "world_size", 1);
  given.local_rank = detail::number_or_environment(options.local_rank, "local_rank", 0);
  given.device = detail::number_or_environment(options.device, "device", 0);
  given.on_sigterm = static_cast<int>(options.on_sigterm);
  detail::throw_unless_ok(muster_init(&given));
}

// Leaves the job in order: waits for this rank's own operations in flight while the peer can still
// complete them (not for a message that no rank will send or receive any more), and announces to
// the other ranks that it left on purpose; a rank that waits for it later gets that as its error.
// Does nothing when not initialised. Never throws: failures at this point (a peer's death) no
// longer matter. A process that ends without it counts as failed, and the others get its death as
// their error.
inline void destroy_process_group() noexcept {
  muster_destroy();
}

inline bool is_initialized() noexcept {
  return muster_is_initialized() == 1;
}

// All of these throw not_initialized.
// RANK: this rank in the job.
inline int rank() {
  return detail::not_negative(muster_rank());
}
// WORLD_SIZE.
inline int world_size() {
  return detail::not_negative(muster_world_size());
}
// If not given, these three are derived from which ranks of the job share a node (the same kernel
// and network namespace), with nodes numbered by their lowest ranks. With tcp:// and file://
// node_rank() is always derived: GROUP_RANK may come from a launcher of this host's ranks only.
// LOCAL_RANK: this rank on this node.
inline int local_rank() {
  return detail::not_negative(muster_local_rank());
}
// LOCAL_WORLD_SIZE: the number of ranks on this node.
inline int local_world_size() {
  return detail::not_negative(muster_local_world_size());
}
// GROUP_RANK: the number of this node.
inline int node_rank() {
  return detail::not_negative(muster_node_rank());
}
// TORCHELASTIC_RESTART_COUNT: 0 at first.
inline int restart_count() {
  return detail::not_negative(muster_restart_count());
}
// This rank's GPU: Device::cuda(i), or Device::cpu() if there is none.
inline Device device() {
  rank();
  const int index = muster_cuda_device();
  return index < 0 ? Device::cpu() : Device::cuda(index);
}

// True if this library can open NCCL and a GPU here; if not, sets *why (unless null) to the reason,
// one line. Needs no process group.
inline bool is_nccl_available(std::string* why = nullptr) {
  return detail::is_available(muster_is_nccl_available, why);
}
inline bool is_gloo_available(std::string* why = nullptr) {
  return detail::is_available(muster_is_gloo_available, why);
}

}  // namespace muster
