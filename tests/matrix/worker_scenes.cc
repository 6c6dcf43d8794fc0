// Scenes with groups, each a program of several ranks that succeeds or prints what went wrong:
//
//   muster --nproc-per-node 4 --no-python worker_scenes outsiders
//
// outsiders    ranks outside a group take no part and are not awaited
// overlapping  groups that share ranks, each used by a thread of its own on every rank
// crossed      asynchronous operations of two groups, begun in opposite order on every other rank
// together     collectives and messages of one group under way at the same time
// late S       all leave a barrier when the last rank arrives, S seconds after the others
// monitored    the barrier that names who did not arrive
// forgotten    all leave with receives under way that no rank serves
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "muster/init.h"
#include "rendezvous/base/prng.h"
#include "tests/wait_for.h"

namespace muster::matrix {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// Throws unless `body` throws a DistributedError of this code.
DistributedError expect_error(ErrorCode code, const std::function<void()>& body) {
  try {
    body();
  } catch (const DistributedError& error) {
    expect(error.code() == code, std::string("another error: ") + error.what());
    return error;
  }
  throw std::runtime_error(std::string("no error; ") + name_of(code) + " was due");
}

// ---- outsiders

void work_inside(ProcessGroup group) {
  for (int i = 0; i < 200; ++i) {
    std::vector<int64_t> sum{group.rank().value + i};
    group.all_reduce(sum);
    expect(sum[0] == 1 + 2 * i, "the sum of two ranks is " + std::to_string(sum[0]));
    group.barrier();
  }
}

// The outsiders wait in a receive for a message that the inside sends after its last operation, so
// the scene would hang if any of them were needed. Only rank 0 even knows of the group.
void outsiders() {
  ProcessGroup all = world();
  expect(all.size() >= 4, "this scene needs 4 ranks");
  const int me = rank();
  std::vector<int32_t> word{0};
  if (me == 1 || me == 2) {
    ProcessGroup inside = new_group({{1}, {2}});
    work_inside(inside);
    word[0] = 4711;
    if (me == 1) {
      for (int r = 0; r < all.size(); ++r) {
        if (r != 1 && r != 2) all.send(word, GroupRank{r});
      }
    }
  } else {
    if (me == 0) {
      ProcessGroup outside = new_group({{1}, {2}});
      expect(!outside.is_member(), "rank 0 is not in the group of 1 and 2");
      const auto error = expect_error(ErrorCode::not_member, [&] { outside.barrier(); });
      std::printf("refused: %s\n", error.what());
    }
    all.recv(word, GroupRank{1});
    expect(word[0] == 4711, "the message is " + std::to_string(word[0]));
  }
  all.barrier();
  std::printf("outsiders: rank %d done\n", me);
}

// ---- overlapping

// Makes the same random calls on all members of a group, by its seed, which all values encode.
class Conversation {
 public:
  Conversation(ProcessGroup group, uint64_t seed)
      : group_(std::move(group)), prng_(seed), seed_(seed), n_(group_.size()) {}

  void round() {
    const size_t count = prng_.below(3) == 0 ? 1 + prng_.below(40000) : 1 + prng_.below(16);
    const int root = static_cast<int>(prng_.below(static_cast<uint64_t>(n_)));
    switch (prng_.below(4)) {
      case 0:
        return all_reduce(count);
      case 1:
        return broadcast(count, root);
      case 2:
        return all_gather(count);
      default:
        return group_.barrier();
    }
  }

 private:
  int64_t value(int from) const {
    return static_cast<int64_t>(seed_ * 1000003) + from * 7 + rounds_;
  }

  void all_reduce(size_t count) {
    std::vector<int64_t> data(count, value(group_.rank().value));
    group_.all_reduce(data);
    int64_t sum = 0;
    for (int r = 0; r < n_; ++r)
      sum += value(r);
    expect_all(data, 0, count, sum);
    ++rounds_;
  }

  void broadcast(size_t count, int root) {
    std::vector<int64_t> data(count, group_.rank().value == root ? value(root) : -1);
    group_.broadcast(data, GroupRank{root});
    expect_all(data, 0, count, value(root));
    ++rounds_;
  }

  void all_gather(size_t count) {
    const std::vector<int64_t> own(count, value(group_.rank().value));
    std::vector<int64_t> all(count * static_cast<size_t>(n_), -1);
    group_.all_gather(own, all);
    for (int r = 0; r < n_; ++r)
      expect_all(all, static_cast<size_t>(r) * count, count, value(r));
    ++rounds_;
  }

  void expect_all(const std::vector<int64_t>& data, size_t first, size_t count, int64_t wanted) {
    for (size_t i = first; i < first + count; ++i) {
      expect(data[i] == wanted, "group " + group_.name() + ", round " + std::to_string(rounds_) +
                                    ": element " + std::to_string(i) + " is " +
                                    std::to_string(data[i]) + " and should be " +
                                    std::to_string(wanted));
    }
  }

  ProcessGroup group_;
  Prng prng_;
  uint64_t seed_;
  int n_;
  int64_t rounds_ = 0;
};

std::vector<std::vector<GlobalRank>> overlapping_lists(int n) {
  const auto ranks = [](std::vector<int> list) {
    std::vector<GlobalRank> made;
    for (const int r : list)
      made.push_back(GlobalRank{r});
    return made;
  };
  std::vector<int> backwards(static_cast<size_t>(n));
  std::iota(backwards.rbegin(), backwards.rend(), 0);
  return {ranks({0, 1, 2}), ranks({3, 2, 1}), ranks({0, 3}),
          ranks(backwards), ranks({2, 0}),    ranks({0, 1, 2})};
}

void overlapping(int rounds) {
  expect(world_size() >= 4, "this scene needs 4 ranks");
  std::vector<Conversation> mine;
  uint64_t seed = 1;
  for (const auto& list : overlapping_lists(world_size())) {
    ++seed;
    if (std::ranges::find(list, GlobalRank{rank()}) == list.end()) continue;
    mine.emplace_back(new_group(list), seed);
  }
  mine.emplace_back(world(), 1);
  std::vector<std::exception_ptr> failures(mine.size());
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < mine.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          for (int round = 0; round < rounds; ++round)
            mine[i].round();
        } catch (...) {
          failures[i] = std::current_exception();
        }
      });
    }
  }
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  std::printf("overlapping: rank %d did %d rounds in each of %zu groups\n", rank(), rounds,
              mine.size());
}

// ---- crossed

// Blocking calls in this order would deadlock; asynchronous calls of different groups must not wait
// for each other.
void crossed() {
  constexpr int kRounds = 100;
  std::vector<GlobalRank> all = world().ranks();
  ProcessGroup first = new_group(all, {.name = "first"});
  ProcessGroup second = new_group(all, {.name = "second"});
  const int64_t n = world_size();
  for (int i = 0; i < kRounds; ++i) {
    std::vector<int64_t> a(static_cast<size_t>(1 + i * 37), 1);
    std::vector<int64_t> b(static_cast<size_t>(1 + i * 11), 2);
    const bool turned = (rank() + i) % 2 == 1;
    Work begun_first = turned ? second.all_reduce_async(b) : first.all_reduce_async(a);
    Work begun_last = turned ? first.all_reduce_async(a) : second.all_reduce_async(b);
    begun_first.wait();
    begun_last.wait();
    expect(a.front() == n && a.back() == n && b.front() == 2 * n && b.back() == 2 * n,
           "round " + std::to_string(i) + " mixed the groups");
  }
  std::printf("crossed: rank %d done\n", rank());
}

// ---- together

// Messages must not wait for collectives begun before them: the last rank begins its collective
// only when the messages have arrived.
void together() {
  constexpr int kRounds = 100;
  ProcessGroup all = world();
  const int n = all.size();
  const int me = all.rank().value;
  const GroupRank next{(me + 1) % n};
  const GroupRank before{(me + n - 1) % n};
  for (int i = 0; i < kRounds; ++i) {
    const size_t count = static_cast<size_t>(1 + i * 301);
    std::vector<int64_t> sum(count, me);
    std::vector<int32_t> sent(count, me * 1000 + i);
    std::vector<int32_t> received(count, -1);
    const bool early = me != n - 1;
    std::vector<Work> works;
    if (early) works.push_back(all.all_reduce_async(sum));
    const P2POp ops[] = {P2POp::send(sent, next, i), P2POp::recv(received, before, i)};
    for (Work& work : all.batch_isend_irecv(ops))
      work.wait();
    if (!early) works.push_back(all.all_reduce_async(sum));
    works.push_back(all.barrier_async());
    for (Work& work : works)
      work.wait();
    expect(sum.front() == n * (n - 1) / 2 && sum.back() == sum.front(),
           "round " + std::to_string(i) + ": the sum is " + std::to_string(sum.front()));
    expect(received.front() == before.value * 1000 + i && received.back() == received.front(),
           "round " + std::to_string(i) + ": received " + std::to_string(received.front()));
  }
  std::printf("together: rank %d done\n", rank());
}

// ---- late

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

// All ranks read the same clock, since they share a kernel.
void late(double seconds) {
  ProcessGroup all = world();
  const GroupRank late_one{all.size() - 1};
  all.barrier();
  std::vector<int64_t> start{now_ns()};
  all.broadcast(start, late_one);
  if (all.rank() == late_one) {
    test::pause_for(
        std::chrono::nanoseconds(start[0] - now_ns() + static_cast<int64_t>(seconds * 1e9)),
        "the last rank is late");
  }
  all.barrier();
  const double left = static_cast<double>(now_ns() - start[0]) * 1e-9;
  std::printf("late: rank %d left after %.6f s\n", rank(), left);
}

// ---- monitored

void monitored() {
  ProcessGroup all = world();
  expect(all.size() >= 4, "this scene needs 4 ranks");
  all.monitored_barrier();
  const bool comes = rank() != 1 && rank() != 3;
  std::vector<uint8_t> gone_by{0};
  if (comes) {
    const auto error =
        expect_error(ErrorCode::timeout, [&] { all.monitored_barrier({.timeout = 300ms}); });
    expect(error.failed_ranks() == std::vector<GlobalRank>{{1}, {3}},
           std::string("it named others: ") + error.what());
    std::printf("monitored: rank %d: %s\n", rank(), error.what());
    if (rank() == 0) {
      all.send(gone_by, GroupRank{1});
      all.send(gone_by, GroupRank{3});
    }
  } else {
    all.recv(gone_by, GroupRank{0});
  }
  // The group stays usable, and the barrier too.
  std::vector<int32_t> one{1};
  all.all_reduce(one);
  expect(one[0] == all.size(), "the sum of ones is " + std::to_string(one[0]));
  std::printf("monitored: rank %d done\n", rank());
}

// ---- forgotten

// As after an exception that unwound the code that waited for them.
void forgotten() {
  ProcessGroup all = world();
  const int n = all.size();
  static std::vector<int32_t> data(4);
  static std::vector<int32_t> large(1'000'000, 7);
  static std::vector<int32_t> received(large.size());
  const GroupRank next{(all.rank().value + 1) % n};
  const GroupRank before{(all.rank().value + n - 1) % n};
  static_cast<void>(all.irecv(data, next, 1));
  // Transfers that the other end waits for complete before any rank leaves.
  static_cast<void>(all.isend(large, next, 2));
  static_cast<void>(all.irecv(received, before, 2));
  const int me = rank();
  const Clock::time_point begun = Clock::now();
  destroy_process_group();
  const std::chrono::duration<double> left = Clock::now() - begun;
  expect(received == large, "a message was lost");
  std::printf("forgotten: rank %d left after %.3f s\n", me, left.count());
}

int run(int argc, char** argv) {
  const std::string_view scene = argc > 1 ? argv[1] : "";
  const std::map<std::string_view, std::function<void()>> scenes{
      {"outsiders", outsiders},
      {"overlapping", [&] { overlapping(argc > 2 ? std::atoi(argv[2]) : 150); }},
      {"crossed", crossed},
      {"together", together},
      {"late", [&] { late(argc > 2 ? std::atof(argv[2]) : 5.0); }},
      {"monitored", monitored},
      {"forgotten", forgotten},
  };
  const auto found = scenes.find(scene);
  if (found == scenes.end()) {
    std::fprintf(stderr, "worker_scenes: no scene '%s'\n", std::string(scene).c_str());
    return 2;
  }
  InitOptions options;
  options.timeout = 60s;
  init_process_group(options);
  found->second();
  destroy_process_group();
  return 0;
}

}  // namespace
}  // namespace muster::matrix

int main(int argc, char** argv) {
  try {
    return muster::matrix::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "FAULT: worker_scenes: %s\n", error.what());
    return 1;
  }
}
