// A long computation that survives its workers.
//
//   muster --nproc-per-node 4 --max-restarts 3 checkpoint /tmp/walk.ckpt
//   muster --nproc-per-node 4 --max-restarts 3 checkpoint /tmp/walk.ckpt --crash-at 70
//   srun -N4 muster --requeue checkpoint /shared/walk.ckpt --steps 100000
//
// Rank 0 writes a checkpoint every 20 steps. With --crash-at, rank 1 kills itself in that step of
// the first attempt; muster restarts all ranks, they resume from the checkpoint, and the last line
// is the same as without the crash. When told to end (kill -TERM the job), or warned of the job's
// time limit, all ranks stop at the same step and save; the same command later resumes there.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ostream>
#include <string>
#include <thread>

#include <muster/distributed.h>
#include <unistd.h>

// Everything that the next step depends on.
struct State {
  int step = 0;
  double position = 0;
};

static State load(const std::string& path) {
  State state;
  // Rank 0 reads; all get the same bytes.
  const std::optional<std::string> saved = muster::load_checkpoint(path);
  if (saved && saved->size() == sizeof state) std::memcpy(&state, saved->data(), sizeof state);
  return state;
}

static void save(const std::string& path, const State& state) {
  muster::save_checkpoint(path, [&](std::ostream& out) {
    out.write(reinterpret_cast<const char*>(&state), sizeof state);
  });
}

// Each rank adds its part; the sum is the same on all.
static void walk_on(State& state) {
  double part[1] = {static_cast<double>((state.step * 7 + muster::rank() * 13) % 11) - 5};
  muster::world().all_reduce(part);
  state.position += part[0];
  ++state.step;
}

static void crash_where_told(int step, int crash_at) {
  if (step != crash_at || muster::rank() != 1 || muster::restart_count() != 0) return;
  std::printf("rank 1 kills itself in step %d\n", step);
  std::fflush(stdout);
  ::kill(::getpid(), SIGKILL);
}

int main(int argc, char** argv) try {
  int crash_at = -1;
  int steps = 100;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--crash-at") == 0) crash_at = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--steps") == 0) steps = std::atoi(argv[i + 1]);
  }
  if (argc < 2 || argc % 2 != 0) {
    std::fprintf(stderr, "usage: checkpoint FILE [--steps N] [--crash-at STEP]\n");
    return 2;
  }
  const std::string path = argv[1];
  muster::init_process_group({.on_sigterm = muster::StopPolicy::agree});
  State state = load(path);
  if (muster::rank() == 0) std::printf("starting at step %d\n", state.step);
  std::fflush(stdout);
  while (state.step < steps) {
    if (muster::should_stop()) {  // At the same step on all ranks.
      save(path, state);
      if (muster::rank() == 0) std::printf("stopped at step %d\n", state.step);
      muster::destroy_process_group();
      return 0;
    }
    crash_where_told(state.step, crash_at);
    walk_on(state);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // Stands for the real work.
    if (state.step % 20 == 0) save(path, state);
  }
  if (muster::rank() == 0) std::printf("arrived at %.0f\n", state.position);
  muster::destroy_process_group();
} catch (const muster::DistributedError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
