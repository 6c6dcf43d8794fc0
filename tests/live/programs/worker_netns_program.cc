// A rank of worker_netns_test.py and no_way_in_test.py: does what its first argument says and
// prints one line about it.
//
//   tour              collectives and messages of many sizes, checked; "rank 1: 64 checks"
//   stop R            rank R stops itself (SIGSTOP); the others print how their all_reduce ended
//   die R             rank R kills itself (SIGKILL) meanwhile; the others print how theirs ended
//   until F           all_reduces and messages until file F is there; "rank 1: 2000 rounds"
//   loop              all_reduces until one fails; prints how ("looping" after the first)
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include <unistd.h>

#include "muster/init.h"
#include "muster/process_group.h"

namespace {

int checks = 0;

void check(bool good, const char* what) {
  ++checks;
  if (good) return;
  std::fprintf(stderr, "rank %d: wrong: %s\n", muster::rank(), what);
  std::exit(3);
}

void check_collectives(muster::ProcessGroup& world, size_t count) {
  const int rank = muster::rank();
  const int n = world.size();
  const auto blocks = static_cast<size_t>(n);
  std::vector<float> data(count, static_cast<float>(rank + 1));
  world.all_reduce(data);
  check(data == std::vector<float>(count, static_cast<float>(n * (n + 1) / 2)), "all_reduce");

  std::vector<int32_t> number(count, rank == 1 % n ? 42 : 0);
  world.broadcast(number, muster::GroupRank{1 % n});
  check(number == std::vector<int32_t>(count, 42), "broadcast");

  const std::vector<int32_t> mine(count, rank);
  std::vector<int32_t> all(count * blocks);
  world.all_gather(mine, all);
  std::vector<int32_t> expected;
  for (int from = 0; from < n; ++from)
    expected.insert(expected.end(), count, from);
  check(all == expected, "all_gather");

  std::vector<int32_t> swapped(all.size());
  const std::vector<int32_t> sent(all.size(), rank);
  world.all_to_all(sent, swapped);
  check(swapped == expected, "all_to_all");

  std::vector<double> part(count);
  const std::vector<double> whole(count * blocks, 0.5);
  world.reduce_scatter(whole, part);
  check(part == std::vector<double>(count, 0.5 * n), "reduce_scatter");
}

void check_messages(muster::ProcessGroup& world, size_t count) {
  const int rank = muster::rank();
  const int n = world.size();
  const muster::GroupRank right{(rank + 1) % n};
  const muster::GroupRank left{(rank + n - 1) % n};
  std::vector<int32_t> out(count);
  std::iota(out.begin(), out.end(), rank);
  std::vector<int32_t> in(count);
  const std::vector<muster::P2POp> both{muster::P2POp::send(out, right, 1),
                                        muster::P2POp::recv(in, left, 1)};
  for (muster::Work& work : world.batch_isend_irecv(both))
    work.wait();
  std::iota(out.begin(), out.end(), left.value);
  check(in == out, "a ring of messages");
}

int tour(muster::ProcessGroup& world) {
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{20'000}, size_t{500'000}}) {
    check_collectives(world, count);
    check_messages(world, count);
    world.barrier();
  }
  std::printf("rank %d: %d checks\n", muster::rank(), checks);
  return 0;
}

int until(muster::ProcessGroup& world, const char* file) {
  int rounds = 0;
  std::vector<int32_t> over(1, 0);
  while (over[0] == 0) {
    check_messages(world, 100);
    over[0] = muster::rank() == 0 && access(file, F_OK) == 0 ? 1 : 0;
    world.all_reduce(over);
    if (++rounds == 1) std::printf("rank %d: looping\n", muster::rank());
    std::fflush(stdout);
    usleep(10'000);  // Leaves processor time to other processes.
  }
  std::printf("rank %d: %d rounds\n", muster::rank(), rounds);
  return 0;
}

// Calls all_reduce until it fails.
int loop(muster::ProcessGroup& world, int stops, int signal) {
  std::vector<float> data(100'000, 0.0f);
  for (int i = 0;; ++i) {
    if (i == 3 && muster::rank() == stops) raise(signal);
    const auto begun = std::chrono::steady_clock::now();
    try {
      world.all_reduce(data);
    } catch (const muster::DistributedError& error) {
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
      std::printf("rank %d: %s after %.3f s, ranks", muster::rank(), name_of(error.code()),
                  took.count());
      for (const muster::GlobalRank failed : error.failed_ranks())
        std::printf(" %d", failed.value);
      std::printf(": %s\n", error.what());
      std::fflush(stdout);
      return 0;
    }
    if (i == 0) {
      std::printf("rank %d: looping\n", muster::rank());
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "tour";
  const int which = argc > 2 ? std::atoi(argv[2]) : -1;
  const bool is_patient = mode == "tour" || mode == "until";
  muster::init_process_group({.timeout = std::chrono::seconds{is_patient ? 60 : 2}});
  muster::ProcessGroup world = muster::world();
  const int result = mode == "tour"    ? tour(world)
                     : mode == "until" ? until(world, argv[2])
                     : mode == "stop"  ? loop(world, which, SIGSTOP)
                     : mode == "die"   ? loop(world, which, SIGKILL)
                                       : loop(world, -1, 0);
  muster::destroy_process_group();
  return result;
}
