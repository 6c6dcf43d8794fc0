// What a barrier is, and what it is not.
//
//   muster --nproc-per-node 4 barrier
//
// 1. All ranks leave when the slowest arrives, however long the others have waited.
// 2. Its position in the code does not matter: barriers are matched by counting calls.
// 3. If a rank calls it once less often than the others, they wait for it until the time-out, and
//    the error names it. Nothing hangs.
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

static void all_leave_together(muster::ProcessGroup world) {
  world.barrier();  // A common start.
  const auto start = Clock::now();
  std::this_thread::sleep_for(milliseconds(100 * muster::rank()));
  const double came = ms_since(start);
  world.barrier();
  const double times[2] = {came, ms_since(start)};
  std::vector<double> all(2 * static_cast<size_t>(muster::world_size()));
  world.gather(times, all, muster::GroupRank{0});
  for (size_t r = 0; muster::rank() == 0 && r < all.size() / 2; ++r) {
    std::printf("rank %zu came after %3.0f ms and left after %3.0f ms\n", r, all[2 * r],
                all[2 * r + 1]);
  }
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
  all_leave_together(world);
  the_place_does_not_matter(world);
  one_call_is_missing(world);
  muster::destroy_process_group();
} catch (const muster::DistributedError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
