// Starting ranks from inside one program.
//
//   #include <cstdio>
//   #include <muster/init.h>
//   #include <muster/spawn.h>
//
//   int train(int rank) {
//     muster::init_process_group();
//     muster::world().barrier();
//     std::printf("rank %d is done\n", rank);
//     muster::destroy_process_group();
//     return 0;
//   }
//
//   int main() {
//     const muster::SpawnResult result = muster::spawn(4, train);
//     if (!result.ok()) std::fprintf(stderr, "%s\n", result.message().c_str());
//     return result.exit_code();
//   }
//
// Each rank is this program, executed anew (/proc/self/exe with the same arguments): fork() without
// exec would lose threads, locks and CUDA. So in a rank main() runs again from its beginning up to
// the same call of spawn(), which there runs the function and ends the process with its result; it
// does not return. What comes before spawn() in main() must therefore be the same in all of them
// and should be little. A rank whose main() ends well without coming to the call has failed, with
// exit code 1 (where spawn() is called in what it runs, too: that main() does not come to). A
// program may call spawn() several times: ranks of the third call pass the first two at once, which
// do and wait for nothing there and return a result without ranks. So what uses a result before the
// last call asks first whether there is one: `if (!first.skipped()) report(first);`. Ranks that run
// on their own machine each, restarts and logs are the launcher's business: see muster(1).
//
// The ranks get RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR and
// MASTER_PORT (a store that the calling process serves on loopback), so init_process_group() needs
// no options. They die with the thread that called spawn() (PR_SET_PDEATHSIG).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "muster/error.h"
#include "muster/types.h"

namespace muster {

struct SpawnOptions {
  // Tells the calls of a program apart where ranks may make others before it than this process did;
  // none: its number among the calls.
  std::string name = {};
  // Added to the environment of the ranks.
  std::vector<std::pair<std::string, std::string>> environment = {};
  // What ranks see as argv[1] and so on; none: what this process got.
  std::optional<std::vector<std::string>> arguments = {};
  // When one rank has failed the others get SIGTERM, and SIGKILL if they are there after this.
  std::chrono::milliseconds stop_timeout = std::chrono::seconds{5};
  // All together; then they are stopped and spawn() throws ErrorCode::timeout. None: as long as it
  // takes.
  std::optional<std::chrono::milliseconds> timeout = {};
};

// How one rank ended.
struct RankExit {
  int pid = 0;
  int code = 0;          // Of exit(); 128 + signal where a signal ended it, as shells count.
  int signal = 0;        // 0: none.
  bool stopped = false;  // spawn() had told it to end when it ended.
  friend bool operator==(const RankExit&, const RankExit&) = default;
};

struct [[nodiscard("a rank may have failed: return its exit_code()")]] SpawnResult {
  std::vector<RankExit> ranks = {};
  // The rank that failed first; none: all went well.
  std::optional<GlobalRank> failed = {};

  // This process is a rank of a later call and only passed this one.
  bool skipped() const { return ranks.empty(); }
  // No rank has failed: true where it was skipped, too.
  bool ok() const { return !failed; }
  // 0, or the code of the rank that failed first.
  int exit_code() const { return failed ? ranks[static_cast<size_t>(failed->value)].code : 0; }
  // One line: "rank 2 (pid 4711) was killed by signal 9 (Killed); 3 others were stopped".
  MUSTER_API std::string message() const;
};

// Starts `nprocs` ranks and waits until all have ended; when one fails, stops the rest, and what it
// returns says so, which is not to be dropped: nothing is thrown for that. What the function
// returns is the rank's exit code; an exception that leaves it is printed to standard error, and
// the code is 1. Throws invalid_argument, system (no process can be started) or timeout, and forked
// in a child of fork(). From any thread, one at a time.
MUSTER_API SpawnResult spawn(int nprocs, const std::function<int(int rank)>& function,
                             const SpawnOptions& options = {});

// The same for functions without a result.
template <typename Function>
  requires std::is_void_v<std::invoke_result_t<Function, int>>
SpawnResult spawn(int nprocs, Function&& function, const SpawnOptions& options = {}) {
  return spawn(
      nprocs,
      [&function](int rank) -> int {
        function(rank);
        return 0;
      },
      options);
}

}  // namespace muster
