// The smallest job: every rank prints its numbers.
//
//   muster --nproc-per-node 4 ranks
//   mpirun -n 4 ranks
//   ranks                               (no launcher: a world of one)
#include <cstdio>

#include <muster/distributed.h>

int main() try {
  muster::init_process_group();
  std::printf("rank %d of %d: local rank %d of %d on node %d, attempt %d\n", muster::rank(),
              muster::world_size(), muster::local_rank(), muster::local_world_size(),
              muster::node_rank(), muster::restart_count());
  // One number from each rank, summed; all ranks get the sum.
  const int me[1] = {muster::rank()};
  int sum[1] = {0};
  muster::world().all_reduce(me, sum);
  if (muster::rank() == 0) std::printf("the ranks add up to %d\n", sum[0]);
  muster::destroy_process_group();
} catch (const muster::DistributedError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
