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
// Each rank is this program, executed anew (/proc/self/exe with the same arguments), since fork()
// without exec would lose threads, locks and CUDA. So a rank runs main() again, up to the same call
// of spawn(). There that call runs the function and ends the process with the function's result; it
// does not return. The code before spawn() in main() must therefore be the same in all ranks, and
// should be short. A rank whose main() ends successfully without reaching the call has failed, with
// exit code 1; so has every rank of a spawn() inside such a function, which main() does not reach.
//
// A program may call spawn() several times: ranks of the third call pass through the first two,
// which do nothing there and return a result without ranks. Check for that before using any result
// but the last: `if (!first.skipped()) report(first);`. For several machines, restarts and logs use
// the launcher: see muster(1).
//
// The ranks get RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR and
// MASTER_PORT (a store that the calling process serves on loopback), so init_process_group() needs
// no options. They are killed when the thread that called spawn() ends (PR_SET_PDEATHSIG).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "muster/error.h"
#include "muster/muster.h"
#include "muster/types.h"
#include "muster/work.h"

namespace muster {

struct SpawnOptions {
  // Identifies this call, for programs in which ranks may call spawn() more or less often before it
  // than this process did. Empty: the call's number.
  std::string name = {};
  std::vector<std::pair<std::string, std::string>> environment = {};
  // argv[1] and so on of the ranks; nullopt: the arguments of this process.
  std::optional<std::vector<std::string>> arguments = {};
  // Grace between SIGTERM and SIGKILL for the other ranks when one has failed.
  std::chrono::milliseconds stop_timeout = std::chrono::seconds{5};
  // Limit for all ranks; then spawn() stops them and throws ErrorCode::timeout. nullopt: none.
  std::optional<std::chrono::milliseconds> timeout = {};
};

// How one rank ended.
struct RankExit {
  int pid = 0;
  int code = 0;          // The exit code; 128 + signal if a signal ended it, as in shells.
  int signal = 0;        // 0: none.
  bool stopped = false;  // It ended after spawn() had stopped it.
  friend bool operator==(const RankExit& a, const RankExit& b) {
    return a.pid == b.pid && a.code == b.code && a.signal == b.signal && a.stopped == b.stopped;
  }
  friend bool operator!=(const RankExit& a, const RankExit& b) { return !(a == b); }
};

// A result must not be discarded: a rank may have failed.
#if MUSTER_HAS_RANGES
struct [[nodiscard("a rank may have failed: return its exit_code()")]] SpawnResult {
#else
struct [[nodiscard]] SpawnResult {
#endif
  std::vector<RankExit> ranks = {};
  // The rank that failed first (one killed by a signal before one that exited); nullopt: none.
  std::optional<GlobalRank> failed = {};

  // True if this process is a rank of a later call and only passed through this one.
  bool skipped() const { return ranks.empty(); }
  // True if no rank has failed, or if skipped.
  bool ok() const { return !failed; }
  // 0, or the code of the rank that failed first.
  int exit_code() const { return failed ? ranks[static_cast<size_t>(failed->value)].code : 0; }
  // One line: "rank 2 (pid 4711) was killed by signal 9 (Killed); 3 others were stopped".
  std::string message() const {
    if (!failed)
      return std::to_string(ranks.size()) + (ranks.size() == 1 ? " rank" : " ranks") +
             " ended well";
    const RankExit& culprit = ranks[static_cast<size_t>(failed->value)];
    std::string text =
        "rank " + std::to_string(failed->value) + " (pid " + std::to_string(culprit.pid) + ") " +
        (culprit.signal == 0 ? "exited with code " + std::to_string(culprit.code)
                             : "was killed by signal " + std::to_string(culprit.signal) + " (" +
                                   strsignal(culprit.signal) + ")");
    const auto is_stopped = [](const RankExit& rank) { return rank.stopped; };
    const auto others = std::count_if(ranks.begin(), ranks.end(), is_stopped);
    if (others > 0)
      text += "; " + std::to_string(others) + (others == 1 ? " other was" : " others were") +
              " stopped";
    return text;
  }
};

namespace detail {

// Returns the exit code of a rank; prints an exception.
inline int run_as_rank(int rank, const std::function<int(int)>& function) noexcept {
  try {
    return function(rank);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
  } catch (...) {
    std::fprintf(stderr, "rank %d: an exception that is not a std::exception\n", rank);
  }
  return 1;
}

// A list of strings for C, which ends with null.
inline std::vector<const char*> c_strings(const std::vector<std::string>& strings) {
  std::vector<const char*> pointers;
  for (const std::string& text : strings)
    pointers.push_back(text.c_str());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace detail

// Starts `nprocs` ranks and waits until all have ended; when one fails, stops the rest. Does not
// throw for that: the result says so and must not be discarded. The function's result is the rank's
// exit code; an exception that leaves it is printed to standard error and the code is 1. Throws
// invalid_argument, system (no process can be started) or timeout, and forked in a child of fork().
// Any thread, one at a time.
inline SpawnResult spawn(int nprocs, const std::function<int(int rank)>& function,
                         const SpawnOptions& options = {}) {
  std::vector<std::string> variables;
  for (const auto& [name, value] : options.environment)
    variables.push_back(name + "=" + value);
  const std::vector<const char*> environment = detail::c_strings(variables);
  muster_spawn_options given MUSTER_SPAWN_OPTIONS;
  if (!options.name.empty()) given.name = options.name.c_str();
  given.environment = environment.data();
  std::vector<const char*> arguments;
  if (options.arguments) {
    arguments = detail::c_strings(*options.arguments);
    given.arguments = arguments.data();
  }
  given.stop_timeout_ms = detail::milliseconds_from_now(options.stop_timeout);
  if (options.timeout) given.timeout_ms = detail::milliseconds_from_now(*options.timeout);
  const auto run = [](void* context, int rank) {
    return detail::run_as_rank(rank, *static_cast<const std::function<int(int)>*>(context));
  };
  std::vector<muster_rank_exit> exits(static_cast<size_t>(std::max(nprocs, 1)));
  int failed = -1;
  detail::throw_unless_ok(muster_spawn(nprocs, run, const_cast<std::function<int(int)>*>(&function),
                                       &given, exits.data(), &failed));
  SpawnResult result;
  if (exits[0].pid == 0) return result;
  for (const muster_rank_exit& exit : exits)
    result.ranks.push_back({exit.pid, exit.code, exit.signal, exit.stopped != 0});
  if (failed >= 0) result.failed = GlobalRank{failed};
  return result;
}

// Overload for functions without a result.
template <typename Function,
          std::enable_if_t<std::is_void_v<std::invoke_result_t<Function, int>>, int> = 0>
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
