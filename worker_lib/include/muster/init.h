// Joining the job: from here on this process is a rank.
//
//   #include <cstdio>
//   #include <muster/init.h>
//
//   int main() {
//     muster::init_process_group();  // By RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
//     std::printf("rank %d of %d\n", muster::rank(), muster::world_size());
//     muster::world().barrier();
//     muster::destroy_process_group();
//   }
//
// Started by muster or torchrun (env://), by mpirun or srun (their variables say rank and world),
// or by hand: a program that no launcher started is a world of one. A rank that ends without
// destroy_process_group(), even by returning from main(), is reported to the others as died.
//
// Where joining fails it throws a DistributedError with the code
// - timeout: ranks did not come (failed_ranks() names them; rank 0 too, where its store does not
//   answer);
// - environment: a variable is missing, malformed or contradicts another; two processes were given
//   the same rank, or ranks different worlds or versions; the port or the meeting file cannot be
//   used, or another job has it (the store at this rank's address serves another run id,
//   TORCHELASTIC_RUN_ID, than its own);
// - rendezvous: the store, through which the ranks meet, broke off, or it is the launcher's and
//   cannot be reached;
// - invalid_argument: InitOptions, or joining twice; system: the kernel refused; backend: what
//   InitOptions::backend asks for is not there; peer_failed or stopped: a rank died, or the job was
//   told to end, meanwhile.
//
// One process group at a time in a process; after destroy_process_group() the next may be
// initialised. Call these from one thread at a time (a second one that joins is refused); rank()
// and the like from any. Nothing of the library works in a child of fork() that did not exec: every
// call says so (ErrorCode::forked). To start ranks from inside a program see spawn.h.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "muster/error.h"
#include "muster/process_group.h"
#include "muster/types.h"

namespace muster {

// What SIGTERM does. The launcher sends it to all ranks when one has failed or the job is to end.
enum class StopPolicy : uint8_t {
  // Where the program left SIGTERM at its default: every blocked call, and every call within the
  // next second, throws ErrorCode::stopped (or peer_failed, where the reason is known); after
  // that second the process ends by SIGTERM as it would without us. A handler that the program has
  // installed before init_process_group() is left alone.
  end_calls = 0,
  // SIGTERM only makes should_stop() true (training.h); operations go on, so that all ranks can
  // agree on the step they stop at.
  agree = 1,
  // The library does not look at SIGTERM.
  ignore = 2,
};

struct InitOptions {
  Backend backend = Backend::automatic;

  // - "env://": RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT as launchers set them; else the
  //   variables of Open MPI or Slurm; else a world of one.
  // - "tcp://host:port": rank 0 listens there; `rank` and `world_size` must be given.
  // - "file:///path": a file on a file system that all ranks see, in a folder that is there; `rank`
  //   and `world_size` must be given. Rank 0 makes it, and removes it when all have come; what an
  //   earlier job left in it is recognised.
  std::string init_method = "env://";

  std::optional<int> rank = {};        // Instead of RANK.
  std::optional<int> world_size = {};  // Instead of WORLD_SIZE.
  // Instead of LOCAL_RANK; none anywhere: its place among the ranks of its node.
  std::optional<int> local_rank = {};

  // Of joining, and of each operation unless a group or a call names its own. torch.distributed's
  // default.
  std::chrono::milliseconds timeout = std::chrono::minutes{30};

  // The GPU of this rank, an index among those that this process sees; none: LOCAL_RANK, or 0 where
  // it sees only one. Only looked at where a GPU is used.
  std::optional<int> device = {};

  StopPolicy on_sigterm = StopPolicy::end_calls;
};

// Blocks until all ranks have joined; after 10 s it says once on standard error (one rank of each
// node does) which have not come. Throws invalid_argument when already initialised.
MUSTER_API void init_process_group(const InitOptions& options = {});

// Leaves in order: waits for this rank's own operations that are under way, as far as their other
// ends still do their part (a message that nobody will send or receive any more is not waited for),
// and tells the others that it left on purpose. Whoever waits for it afterwards is told so. Does
// nothing when not initialised. Never throws; what went wrong (a peer's death meanwhile) does not
// matter any more. A process that ends without it counts as failed: the others are told that it
// died.
MUSTER_API void destroy_process_group() noexcept;

MUSTER_API bool is_initialized() noexcept;

// All of these throw not_initialized.
MUSTER_API int rank();        // In the job: RANK.
MUSTER_API int world_size();  // WORLD_SIZE.
// These three are worked out where nobody said: from which ranks of the job are on one node (the
// same kernel and network namespace), nodes being counted by their lowest ranks. With tcp:// and
// file:// node_rank() always is: GROUP_RANK may be that of a launcher which has started only this
// host's ranks.
MUSTER_API int local_rank();        // LOCAL_RANK: on this node.
MUSTER_API int local_world_size();  // LOCAL_WORLD_SIZE: how many ranks this node has.
MUSTER_API int node_rank();         // GROUP_RANK: which node this is.
MUSTER_API int restart_count();     // TORCHELASTIC_RESTART_COUNT: 0 at first.
// The GPU of this rank: Device::cuda(i), or Device::cpu() where there is none.
MUSTER_API Device device();

// Whether this library could open NCCL and a GPU here; if not, *why (when not null) is set to one
// line that says why. Does not need a process group.
MUSTER_API bool is_nccl_available(std::string* why = nullptr);
MUSTER_API bool is_gloo_available(std::string* why = nullptr);

}  // namespace muster
