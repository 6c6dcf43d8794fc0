// What spawn() (muster/spawn.h) does in three pieces: what a rank is started with, starting one
// process, and waiting for all of them. The thread that starts them waits for them: their
// parent-death signal fires when it ends.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "muster/spawn.h"
#include "worker_lib/failure.h"

namespace muster::worker {

// Which call of spawn() a process was started for, as its environment says.
struct SpawnMark {
  std::string call;
  std::string parent;  // ProcessLife of who started it.

  std::string encode() const;
  static std::optional<SpawnMark> decode(const std::string& text);
};

inline constexpr const char* kSpawnVariable = "MUSTER_SPAWN";

using EnvironmentPairs = std::vector<std::pair<std::string, std::string>>;

// "NAME=value" for one rank: `inherited` without what another launcher said, with the contract's
// variables, and with `added`, which wins.
std::vector<std::string> rank_environment(const std::vector<std::string>& inherited, int rank,
                                          int nprocs, uint16_t store_port, const SpawnMark& mark,
                                          const EnvironmentPairs& added);

// The function's result in this process, which is a rank, as an exit code: exceptions are printed.
int run_as_rank(int rank, const std::function<int(int)>& function);

// A process that was started and not yet reaped.
struct StartedRank {
  int pid = -1;
  int pidfd = -1;
};

// This program anew (/proc/self/exe), with SIGKILL as its parent-death signal and everything else
// inherited. Fails with system.
Outcome<StartedRank> start_rank(const std::vector<std::string>& arguments,
                                const std::vector<std::string>& environment);

// Waits until all have ended; when one fails or the time is over, stops the rest.
class RankKeeper {
 public:
  explicit RankKeeper(const SpawnOptions& options) : options_(options) {}
  RankKeeper(const RankKeeper&) = delete;
  RankKeeper& operator=(const RankKeeper&) = delete;
  // Kills and reaps those that are there.
  ~RankKeeper();

  void add(StartedRank started);
  // `on_failure` is told of the first failure before the rest is stopped. Fails with timeout, after
  // all have ended, and the ranks that had not by then.
  Outcome<SpawnResult> wait(const std::function<void(const SpawnResult&)>& on_failure);

 private:
  using Instant = std::chrono::steady_clock::time_point;

  size_t running() const;
  void await_change(Instant until);
  bool reap(size_t rank);
  void reap_ended();
  void await_those_on_their_way();
  void stop_rest(int signal);
  void wait_for_rest();
  void stop_and_wait();
  std::vector<GlobalRank> running_ranks() const;

  const SpawnOptions& options_;
  std::vector<StartedRank> started_;  // By rank; pidfd -1: reaped.
  SpawnResult result_;
  bool is_stopping_ = false;  // How they end from here on is our doing.
};

}  // namespace muster::worker
