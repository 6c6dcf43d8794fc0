// Groups: subsets of the ranks, with their own rank numbers.
//
//   muster --nproc-per-node 4 groups
//
// Only the members of a group create it and take part in its operations. A rank has one number in
// the job (GlobalRank) and another in each of its groups (GroupRank); the two types do not convert
// into each other.
#include <cstdio>
#include <string>
#include <vector>

#include <muster/distributed.h>

// Prints every rank's line, in rank order.
static void print_in_order(const std::string& line) {
  for (const std::string& each : muster::world().all_gather_bytes(line)) {
    if (muster::rank() == 0) std::printf("%s", each.c_str());
  }
}

static int sum_over(muster::ProcessGroup group, int value) {
  int sum[1] = {value};
  group.all_reduce(sum);
  return sum[0];
}

int main() try {
  muster::init_process_group();
  const int rank = muster::rank();

  // A group by a list of ranks of the job. The other ranks do not take part and are not waited for.
  std::vector<muster::GlobalRank> mine;
  for (int r = rank % 2; r < muster::world_size(); r += 2)
    mine.push_back({r});
  muster::ProcessGroup parity = muster::new_group(mine, {.name = rank % 2 == 0 ? "even" : "odd"});
  print_in_order("rank " + std::to_string(rank) + " is rank " +
                 std::to_string(parity.rank().value) + " of " + parity.name() +
                 "; its sum of ranks is " + std::to_string(sum_over(parity, rank)) + "\n");

  // Groups by colour: ranks that pass the same colour form a group, ordered by key. Here a grid of
  // two columns, as for tensor and data parallelism; each rank is in a row and in a column.
  muster::ProcessGroup row = muster::world().split(/*color=*/rank / 2);
  muster::ProcessGroup column = muster::world().split(/*color=*/rank % 2, /*key=*/-rank);
  print_in_order("rank " + std::to_string(rank) + ": row sum " +
                 std::to_string(sum_over(row, rank)) + ", place in its column, from below, " +
                 std::to_string(column.rank().value) + "\n");

  // The root of a group's operation is a rank of the group.
  const muster::GroupRank root = parity.group_rank(mine.back());
  std::vector<int> note{rank};
  parity.broadcast(note, root);
  print_in_order("rank " + std::to_string(rank) + " heard " + std::to_string(note[0]) + "\n");

  // A rank that is not in a group cannot use it.
  muster::ProcessGroup first_only = muster::new_group({muster::GlobalRank{0}});
  std::string line;
  try {
    first_only.barrier();
    line = "rank 0 is alone in its group\n";
  } catch (const muster::DistributedError& error) {
    line = std::string(error.what()) + "\n";
  }
  print_in_order(line);
  muster::destroy_process_group();
} catch (const muster::DistributedError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
