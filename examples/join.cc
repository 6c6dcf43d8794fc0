// Joining without a launcher: each process is started by hand and told where to meet, its rank and
// the number of ranks.
//
//   for r in 0 1 2; do join tcp://127.0.0.1:29510 $r 3 & done; wait
//   for r in 0 1 2; do join file:///tmp/meeting $r 3 & done; wait
//
// tcp: rank 0 listens at that address, so use one of its host that the others can reach. file: a
// path on a file system that all ranks see.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <muster/distributed.h>

int main(int argc, char** argv) try {
  if (argc != 4) {
    std::fprintf(stderr, "usage: join tcp://HOST:PORT|file:///PATH RANK WORLD_SIZE\n");
    return 2;
  }
  muster::init_process_group({.init_method = argv[1],
                              .rank = std::atoi(argv[2]),
                              .world_size = std::atoi(argv[3]),
                              .timeout = std::chrono::seconds(20)});
  std::string greeting = "rank 0 waited for us at " + std::string(argv[1]);
  muster::world().broadcast_bytes(greeting, muster::GroupRank{0});
  std::printf("rank %d of %d: %s\n", muster::rank(), muster::world_size(), greeting.c_str());
  muster::destroy_process_group();
} catch (const muster::DistributedError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
