// Ranks that train on without those that die, for worker_recovery_test.py and death_bench.py: each
// step adds to a weight what the living ranks' gradients come to.
//
//   worker_recovery_ranks FOLDER STEPS PAUSE_US
//
// Appends lines to the file "log": "pid RANK PID", "runs RANK", "shrunk RANK NANOSECONDS SIZE" once
// the first step after a death is done, "step STEP SIZE SUM" by each rank that has done it, and
// "done RANK WEIGHT". A step that not all have done is done again.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

#include "muster/distributed.h"

namespace {

std::string folder;

void note(const std::string& line) {
  const std::string text = line + "\n";
  const int fd = open((folder + "/log").c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0 || write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    std::abort();
  close(fd);
}

std::string nanoseconds_now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::to_string(std::chrono::nanoseconds(now).count());
}

struct Trained {
  int64_t step = 0;
  int64_t weight = 0;
};

// One step: all ranks' gradients are integers, so that the sum depends on the members alone.
Trained train(muster::ProcessGroup& team, const Trained& before, int rank) {
  std::array<int64_t, 2> sum{(before.step + 1) * (rank + 1), 1};
  team.all_reduce(sum);
  note("step " + std::to_string(before.step) + " " + std::to_string(sum[1]) + " " +
       std::to_string(sum[0]));
  return {before.step + 1, before.weight + sum[0]};
}

}  // namespace

int main(int, char** argv) {
  folder = argv[1];
  const int64_t steps = std::atoll(argv[2]);
  const std::chrono::microseconds pause(std::atoll(argv[3]));
  muster::init_process_group();
  const int rank = muster::rank();
  note("pid " + std::to_string(rank) + " " + std::to_string(getpid()));
  muster::ProcessGroup team = muster::world();
  Trained now, before;  // Ranks are at most one step apart.
  bool has_shrunk = false;
  for (;;) {
    bool is_done = false;
    try {
      if (has_shrunk) {
        std::array<int64_t, 1> step{now.step};
        team.all_reduce(step, muster::ReduceOp::min);
        if (step[0] < now.step) now = before;
      }
      while (now.step < steps) {
        const Trained next = train(team, now, rank);
        before = now;
        now = next;
        if (now.step == 5) note("runs " + std::to_string(rank));
        if (std::exchange(has_shrunk, false)) {
          note("shrunk " + std::to_string(rank) + " " + nanoseconds_now() + " " +
               std::to_string(team.size()));
        }
        std::this_thread::sleep_for(pause);
      }
      is_done = true;
    } catch (const muster::DistributedError& error) {
      if (error.code() != muster::ErrorCode::peer_failed) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        return 3;
      }
    }
    // All are done, or all go on without those that died.
    if (team.agree(is_done ? 1 : 0) == 1) break;
    team = team.shrink();
    has_shrunk = true;
  }
  note("done " + std::to_string(rank) + " " + std::to_string(now.weight));
  muster::destroy_process_group();
}
