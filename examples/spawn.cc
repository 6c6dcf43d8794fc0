// Starting ranks from inside one program: no launcher, no arguments to pass.
//
//   spawn          (starts 4 ranks of itself)
//
// Each rank is this program, executed again: there main() runs up to the same spawn(), which calls
// the function instead. So the code before spawn() runs in every rank too.
#include <cstdio>

#include <muster/distributed.h>

static int rank_main(int rank) {
  muster::init_process_group();
  int sum[1] = {rank};
  muster::world().all_reduce(sum);
  std::printf("rank %d: the ranks add up to %d\n", rank, sum[0]);
  muster::destroy_process_group();
  return 0;
}

int main() try {
  const muster::SpawnResult result = muster::spawn(4, rank_main);
  if (!result.ok()) std::fprintf(stderr, "%s\n", result.message().c_str());
  return result.exit_code();
} catch (const muster::DistributedError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
