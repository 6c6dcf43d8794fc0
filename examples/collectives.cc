// A tour: every collective operation once, then the four point-to-point calls.
//
//   muster --nproc-per-node 4 collectives
//
// Each line shows what the ranks hold afterwards. Before each, rank r holds 10r, 10r + 1, ...
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include <muster/distributed.h>

using muster::ConstBuffer;
using muster::GroupRank;
using muster::ReduceOp;
using Numbers = std::vector<int>;

static size_t n() {
  return static_cast<size_t>(muster::world_size());
}
static size_t me() {
  return static_cast<size_t>(muster::rank());
}

static Numbers mine(size_t count) {
  Numbers numbers(count);
  std::iota(numbers.begin(), numbers.end(), 10 * muster::rank());
  return numbers;
}

// Byte strings of different lengths have an operation of their own.
static void show(const char* what, const Numbers& numbers) {
  std::string text;
  for (const int number : numbers)
    text += " " + std::to_string(number);
  const std::vector<std::string> all = muster::world().all_gather_bytes(text);
  if (muster::rank() != 0) return;
  std::printf("%-16s", what);
  for (const std::string& one : all)
    std::printf(" |%s", one.empty() ? " -" : one.c_str());
  std::printf("\n");
}

// Only the root gets a result; the others pass an empty buffer.
static Numbers at_root(size_t count) {
  return Numbers(me() == 0 ? count : 0);
}

static void one_and_all(muster::ProcessGroup world) {
  Numbers data = mine(2);
  world.broadcast(data, GroupRank{world.size() - 1});
  show("broadcast", data);

  const Numbers two = mine(2);
  Numbers sum = at_root(2);
  world.reduce(two, sum, GroupRank{0});
  show("reduce", sum);

  const Numbers one = mine(1);
  Numbers all = at_root(n());
  world.gather(one, all, GroupRank{0});
  show("gather", all);

  const Numbers parts = me() == 0 ? mine(n()) : Numbers();
  Numbers part(1);
  world.scatter(parts, part, GroupRank{0});
  show("scatter", part);
}

static void all_to_everyone(muster::ProcessGroup world) {
  Numbers data = mine(2);
  world.all_reduce(data, ReduceOp::max);  // In place.
  show("all_reduce", data);

  const Numbers one = mine(1);
  Numbers all(n());
  world.all_gather(one, all);
  show("all_gather", all);

  const Numbers parts = mine(n());
  Numbers part(1);
  world.reduce_scatter(parts, part);
  show("reduce_scatter", part);

  Numbers swapped(n());
  world.all_to_all(parts, swapped);
  show("all_to_all", swapped);
}

// The v-variants: rank r contributes or receives r + 1 numbers.
static void unequal_counts(muster::ProcessGroup world) {
  std::vector<size_t> counts(n());
  std::iota(counts.begin(), counts.end(), size_t{1});
  const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});

  const Numbers some = mine(counts[me()]);
  const Numbers parts = mine(total);
  Numbers collected = at_root(total);
  world.gather_v(some, collected, counts, GroupRank{0});
  show("gather_v", collected);

  Numbers all(total);
  world.all_gather_v(some, all, counts);
  show("all_gather_v", all);

  Numbers part(counts[me()]);
  world.scatter_v(me() == 0 ? ConstBuffer(parts) : ConstBuffer(), counts, part, GroupRank{0});
  show("scatter_v", part);

  world.reduce_scatter_v(parts, part, counts);
  show("reduce_scatter_v", part);

  // Rank s sends r + 1 numbers to each rank r.
  const std::vector<size_t> from_each(n(), me() + 1);
  Numbers swapped(n() * (me() + 1));
  world.all_to_all_v(parts, counts, swapped, from_each);
  show("all_to_all_v", swapped);
}

// Around a ring: each rank sends to the next and receives from the one before.
static void point_to_point(muster::ProcessGroup world) {
  const GroupRank next{static_cast<int>((me() + 1) % n())};
  const GroupRank before{static_cast<int>((me() + n() - 1) % n())};
  const Numbers sent = mine(1);
  Numbers got(1);
  // One after the other: rank 0 starts, the others pass the number on.
  if (me() == 0) {
    if (n() > 1) world.send(sent, next);
    if (n() > 1) world.recv(got, before);
  } else {
    world.recv(got, before);
    got[0] += 1;
    world.send(got, next);
  }
  show("send, recv", got);

  // All at the same time. The buffers belong to the operations until their Work is done.
  if (n() > 1) {
    muster::Work sending = world.isend(sent, next);
    muster::Work receiving = world.irecv(got, before);
    receiving.wait();
    sending.wait();
  }
  show("isend, irecv", got);
}

int main() try {
  muster::init_process_group();
  muster::ProcessGroup world = muster::world();
  one_and_all(world);
  all_to_everyone(world);
  unequal_counts(world);
  point_to_point(world);

  // Every operation has an asynchronous form, which returns at once; wait() throws if it failed.
  Numbers data = mine(1);
  muster::Work work = world.all_reduce_async(data);
  work.wait();
  show("async", data);
  world.barrier();
  muster::destroy_process_group();
} catch (const muster::DistributedError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
