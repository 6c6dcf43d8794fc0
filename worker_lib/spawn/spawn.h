// The parts of spawn() (muster/spawn.h): a rank's environment, starting one, and waiting for all,
// on the starting thread, since the ranks' parent-death signal fires when that ends.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "muster/spawn.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_lib/failure.h"
#include "worker_lib/watch/process_life.h"

namespace muster::worker {

// The call of spawn() that a process was started for, from its environment.
struct SpawnMark {
  std::string call;
  ProcessLife parent;  // The process that started it.

  std::string encode() const;
  static std::optional<SpawnMark> decode(const std::string& text);
};

inline constexpr const char* kSpawnVariable = "MUSTER_SPAWN";

using EnvironmentPairs = std::vector<std::pair<std::string, std::string>>;

// Lets the ranks find and authenticate each other.
struct SpawnMeeting {
  uint16_t store_port = 0;
  std::string secret;  // Bytes.
};

// Returns "NAME=value" entries for one rank: `inherited` without another launcher's variables, plus
// the contract's, plus `added`, which takes precedence.
std::vector<std::string> rank_environment(const std::vector<std::string>& inherited, int rank,
                                          int nprocs, const SpawnMeeting& meeting,
                                          const SpawnMark& mark, const EnvironmentPairs& added);

// Returns a rank's exit code.
using RankFunction = int (*)(void* context, int rank);

// A started process that is not yet reaped.
struct StartedRank {
  int pid = -1;
  UniqueFd end;  // rendezvous/base/process_end.h
};

// Starts this program again (/proc/self/exe), with SIGKILL as parent-death signal. Fails: system.
Outcome<StartedRank> start_rank(const std::vector<std::string>& arguments,
                                const std::vector<std::string>& environment);

// Waits until all ranks have ended; when one fails or time is up, stops the rest.
class RankKeeper {
 public:
  explicit RankKeeper(const SpawnOptions& options) : options_(options) {}
  RankKeeper(RankKeeper&&) = delete;
  // Kills and reaps the ranks still running.
  ~RankKeeper();

  void add(StartedRank started);
  // Calls `on_failure` with the first failure before the rest is stopped. Fails with timeout once
  // all have ended, naming the ranks that had not by the deadline.
  Outcome<SpawnResult> wait(const std::function<void(const SpawnResult&)>& on_failure);

 private:
  using Instant = std::chrono::steady_clock::time_point;

  bool any_running() const;
  void await_change(Instant until);
  bool reap(size_t rank);
  void reap_ended();
  void await_those_on_their_way();
  void stop_rest(int signal);
  void wait_for_rest();
  void stop_and_wait();
  std::vector<GlobalRank> running_ranks() const;

  const SpawnOptions& options_;
  std::vector<StartedRank> started_;  // Indexed by rank; `end` is reset once reaped.
  SpawnResult result_;
  bool is_stopping_ = false;  // Once true, ranks end because they are stopped.
};

}  // namespace muster::worker
