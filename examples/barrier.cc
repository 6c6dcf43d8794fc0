// What a barrier is, and what it is not.
//
//   muster --nproc-per-node 4 barrier
//
// 1. All ranks leave when the slowest arrives, however long the others have waited. It prints the
//    same two lines of each rank twice, in the order of their times: without a barrier between them
//    and with one.
// 2. Its position in the code does not matter: barriers are matched by counting calls.
// 3. If a rank calls it once less often than the others, they wait for it until the time-out, and
//    the error names it. Nothing hangs.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <thread>
#include <vector>

#include <muster/distributed.h>

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

static double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// What each rank does, 100 ms apart, with a barrier between arriving and leaving or without one.
static void print_transcript(muster::ProcessGroup world, bool with_barrier) {
  world.barrier();  // A common start.
  const auto start = Clock::now();
  std::this_thread::sleep_for(milliseconds(100 * muster::rank()));
  const double arrived = ms_since(start);
  if (with_barrier) world.barrier();
  const double times[2] = {arrived, ms_since(start)};
  std::vector<double> all(2 * static_cast<size_t>(muster::world_size()));
  world.gather(times, all, muster::GroupRank{0});
  if (muster::rank() != 0) return;
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return all[i]; });
  std::printf("%s a barrier:\n", with_barrier ? "with" : "without");
  for (const size_t i : order)
    std::printf("  %3.0f ms  rank %zu %s\n", all[i], i / 2, i % 2 == 0 ? "arrives" : "leaves");
}

static void the_place_does_not_matter(muster::ProcessGroup world) {
  if (muster::rank() == 0) {
    world.barrier();  // Meets ...
  } else {
    world.barrier();  // ... this one.
    std::fflush(stdout);
  }
  if (muster::rank() == 0) std::printf("two barriers in the code, one in the job\n");
}

static void one_call_is_missing(muster::ProcessGroup world) {
  // A failed group stays failed, so the mistake gets its own group, with a short time-out.
  std::vector<muster::GlobalRank> everyone = world.ranks();
  muster::ProcessGroup careless =
      muster::new_group(everyone, {.name = "careless", .timeout = milliseconds(500)});
  const bool forgot = muster::rank() == muster::world_size() - 1;
  try {
    if (!forgot) careless.monitored_barrier();
  } catch (const muster::DistributedError& error) {
    if (muster::rank() == 0) std::printf("%s\n", error.what());
  }
  world.barrier();  // The world is not affected.
  try {
    if (!forgot) careless.barrier();
  } catch (const muster::DistributedError& error) {
    if (muster::rank() == 0) std::printf("%s\n", error.what());
  }
  world.barrier();
}

int main() try {
  muster::init_process_group();
  muster::ProcessGroup world = muster::world();
  print_transcript(world, false);
  print_transcript(world, true);
  the_place_does_not_matter(world);
  one_call_is_missing(world);
  muster::destroy_process_group();
} catch (const muster::DistributedError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
