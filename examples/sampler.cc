// Which rank trains on which samples: a data set of 10, distributed anew in every epoch.
//
//   muster --nproc-per-node 4 sampler
//
// The same numbers as torch.utils.data.DistributedSampler(range(10), seed=7).
#include <cstdio>
#include <string>

#include <muster/distributed.h>

int main() try {
  muster::init_process_group();
  muster::DistributedSampler padded(10, {.seed = 7});  // 10 is no multiple of 4: two occur twice.
  muster::DistributedSampler dropped(10, {.seed = 7, .drop_last = true});  // Or two are left out.
  for (uint64_t epoch = 0; epoch < 2; ++epoch) {
    padded.set_epoch(epoch);
    dropped.set_epoch(epoch);
    std::string line = "epoch " + std::to_string(epoch) + " rank " + std::to_string(muster::rank());
    line += ": padded";
    for (const size_t sample : padded)
      line += " " + std::to_string(sample);
    line += "; dropped";
    for (const size_t sample : dropped)
      line += " " + std::to_string(sample);
    for (const std::string& each : muster::world().all_gather_bytes(line)) {
      if (muster::rank() == 0) std::printf("%s\n", each.c_str());
    }
  }
  muster::destroy_process_group();
} catch (const muster::DistributedError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
