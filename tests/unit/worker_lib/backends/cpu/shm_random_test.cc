// Random programs: the same random calls on all ranks, of all kinds, with unequal counts and odd
// shapes of the segment, one after the other without a barrier between, some ranks slower than
// others and some of the buffers in shared memory. Expected results are computed from what the
// other ranks send.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/unit/worker_lib/backends/cpu/shm_world.h"

namespace muster::worker {
namespace {

using shm_test::said;
using shm_test::World;

struct RandomCall {
  OpKind kind;
  bool is_v;
  int root;
  size_t count;
  // counts[s][r]: elements from rank s to rank r, as far as the kind uses them.
  std::vector<std::vector<size_t>> counts;
  std::vector<bool> shared;  // By rank: true if its buffers lie in shared memory.
};

struct RandomProgram {
  SegmentShape shape;
  std::vector<RandomCall> calls;
};

// Element `index` that rank `from` sends: small, so that sums are exact.
int32_t sent(size_t call, int from, size_t index) {
  return static_cast<int32_t>((call * 131 + static_cast<size_t>(from) * 17 + index * 7) % 1009);
}

bool of_blocks(OpKind kind) {
  return kind == OpKind::gather || kind == OpKind::all_gather || kind == OpKind::scatter ||
         kind == OpKind::reduce_scatter || kind == OpKind::all_to_all;
}

size_t random_count(std::mt19937_64& random) {
  constexpr std::array<size_t, 6> kMost{1, 3, 20, 200, 3'000, 30'000};
  return random() % kMost[random() % kMost.size()];
}

RandomCall random_call(int ranks, std::mt19937_64& random) {
  RandomCall call{};
  call.kind = ring::kCollectives[random() % ring::kCollectives.size()];
  call.is_v = of_blocks(call.kind) && random() % 2 == 0;
  call.root = static_cast<int>(random() % static_cast<size_t>(ranks));
  call.count = random_count(random);
  const auto size = static_cast<size_t>(ranks);
  call.counts.assign(size, std::vector<size_t>(size, call.count));
  for (auto& row : call.counts) {
    for (size_t& count : row)
      count = call.is_v ? random_count(random) : call.count;
  }
  // Except in all_to_all, counts depend on one end only.
  const bool by_receiver = call.kind == OpKind::scatter || call.kind == OpKind::reduce_scatter;
  for (size_t s = 0; s < size && call.kind != OpKind::all_to_all; ++s) {
    for (size_t r = 0; r < size; ++r)
      call.counts[s][r] = call.counts[0][by_receiver ? r : s];
  }
  if (call.kind != OpKind::all_to_all && !by_receiver) {
    for (size_t s = 1; s < size; ++s) {
      const size_t own = call.is_v ? random_count(random) : call.count;
      std::fill(call.counts[s].begin(), call.counts[s].end(), own);
    }
  }
  const uint64_t how = random() % 3;
  for (size_t r = 0; r < size; ++r) {
    call.shared.push_back(how == 0 || (how == 1 && random() % 2 == 0));
  }
  return call;
}

RandomProgram random_program(uint64_t seed) {
  std::mt19937_64 random(seed);
  RandomProgram program;
  const int ranks = 2 + static_cast<int>(random() % 4);
  program.shape.ranks = ranks;
  program.shape.small_bytes = std::array<size_t, 4>{0, 64, 1024, 8192}[random() % 4];
  program.shape.chunk_bytes = kCacheLine * static_cast<size_t>(ranks) * (1 + random() % 40);
  const size_t calls = 1 + random() % 20;
  for (size_t i = 0; i < calls; ++i)
    program.calls.push_back(random_call(ranks, random));
  return program;
}

// One rank's part of a call.
class RankPart {
 public:
  RankPart(const RandomCall& call, size_t number, int me)
      : call_(call),
        number_(number),
        me_(static_cast<size_t>(me)),
        ranks_(call.counts.size()),
        at_root_(me == call.root) {}

  size_t in_count() const {
    switch (call_.kind) {
      case OpKind::barrier:
        return 0;
      case OpKind::gather:
      case OpKind::all_gather:
        return call_.counts[me_][0];
      case OpKind::scatter:
        return at_root_ ? row(me_, ranks_) : 0;
      case OpKind::reduce_scatter:
      case OpKind::all_to_all:
        return row(me_, ranks_);
      default:
        return call_.count;
    }
  }

  std::vector<int32_t> expected() const {
    std::vector<int32_t> values;
    const auto take = [&](size_t from, size_t start, size_t count) {
      for (size_t i = 0; i < count; ++i) {
        values.push_back(sent(number_, static_cast<int>(from), start + i));
      }
    };
    const auto root = static_cast<size_t>(call_.root);
    switch (call_.kind) {
      case OpKind::barrier:
        break;
      case OpKind::broadcast:
        take(root, 0, call_.count);
        break;
      case OpKind::reduce:
        if (at_root_) values = sums(0, call_.count);
        break;
      case OpKind::all_reduce:
        values = sums(0, call_.count);
        break;
      case OpKind::reduce_scatter:
        values = sums(row(me_, me_), call_.counts[me_][me_]);
        break;
      case OpKind::scatter:
        take(root, row(root, me_), call_.counts[root][me_]);
        break;
      case OpKind::gather:
      case OpKind::all_gather:
        for (size_t from = 0; from < ranks_ && (at_root_ || call_.kind == OpKind::all_gather);
             ++from) {
          take(from, 0, call_.counts[from][0]);
        }
        break;
      default:
        for (size_t from = 0; from < ranks_; ++from) {
          take(from, row(from, me_), call_.counts[from][me_]);
        }
    }
    return values;
  }

  Operation operation(int32_t* in, int32_t* out) const {
    Operation made{.kind = call_.kind,
                   .count = call_.count,
                   .dtype = DType::int32,
                   .root = call_.root,
                   .is_v = call_.is_v};
    made.in = reinterpret_cast<std::byte*>(in);
    made.out = reinterpret_cast<std::byte*>(call_.kind == OpKind::broadcast ? in : out);
    for (size_t i = 0; i < in_count(); ++i)
      in[i] = sent(number_, static_cast<int>(me_), i);
    if (call_.is_v) give_counts(made);
    return made;
  }

 private:
  // Number of elements that `from` sends to the ranks before `until`.
  size_t row(size_t from, size_t until) const {
    const auto& counts = call_.counts[from];
    return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(until),
                           size_t{0});
  }

  std::vector<int32_t> sums(size_t start, size_t count) const {
    std::vector<int32_t> values(count);
    for (size_t from = 0; from < ranks_; ++from) {
      for (size_t i = 0; i < count; ++i) {
        values[i] += sent(number_, static_cast<int>(from), start + i);
      }
    }
    return values;
  }

  void give_counts(Operation& made) const {
    std::vector<size_t> to_me;
    for (const auto& from : call_.counts)
      to_me.push_back(from[me_]);
    made.count = call_.counts[me_][0];
    switch (call_.kind) {
      case OpKind::gather:
        if (at_root_) made.recv_counts = to_me;
        break;
      case OpKind::scatter:
        made.count = call_.counts[static_cast<size_t>(call_.root)][me_];
        if (at_root_) made.send_counts = call_.counts[me_];
        break;
      case OpKind::all_gather:
        made.recv_counts = to_me;
        break;
      case OpKind::reduce_scatter:
        made.count = call_.counts[me_][me_];
        made.send_counts = call_.counts[me_];
        break;
      default:
        made.send_counts = call_.counts[me_];
        made.recv_counts = to_me;
    }
  }

  const RandomCall& call_;
  size_t number_;
  size_t me_;
  size_t ranks_;
  bool at_root_;
};

// Returns what is wrong, or an empty string.
std::string run_part(const RandomCall& call, size_t number, int rank, ShmGroup& group,
                     int32_t* shared, size_t shared_count) {
  const RankPart part(call, number, rank);
  const std::vector<int32_t> expected = part.expected();
  const size_t in_count = std::max(part.in_count(), call.count);
  std::vector<int32_t> own(in_count + expected.size());
  int32_t* memory = own.data();
  if (call.shared[static_cast<size_t>(rank)] && own.size() <= shared_count) memory = shared;
  int32_t* const out = memory + in_count;
  const Operation operation = part.operation(memory, out);
  const Outcome<> outcome = group.run(operation, soon());
  if (!outcome) return said(outcome);
  const int32_t* result = call.kind == OpKind::broadcast ? memory : out;
  if (std::equal(expected.begin(), expected.end(), result)) return {};
  return fmt::format("call {} ({}{} of {}): rank {} got something else", number, name_of(call.kind),
                     call.is_v ? "_v" : "", call.count, rank);
}

std::string run_program(const RandomProgram& program, uint64_t seed) {
  constexpr size_t kSharedCount = 60'000;
  World world(program.shape);
  std::vector<std::string> wrong(static_cast<size_t>(world.size()));
  world.each([&](int rank, ShmGroup& group) {
    std::minstd_rand lateness(static_cast<uint32_t>(seed) + static_cast<uint32_t>(rank));
    const SharedBlock block = *group.allocate_shared(kSharedCount * sizeof(int32_t), soon());
    std::string& complaint = wrong[static_cast<size_t>(rank)];
    for (size_t i = 0; i < program.calls.size() && complaint.empty(); ++i) {
      if (lateness() % 8 == 0) std::this_thread::yield();
      complaint = run_part(program.calls[i], i, rank, group, static_cast<int32_t*>(block.data),
                           kSharedCount);
      if (!complaint.empty()) group.abort({ErrorCode::aborted, "another rank found a mistake"});
    }
  });
  std::string all;
  for (const std::string& one : wrong)
    all += one.empty() ? "" : one + "; ";
  return all;
}

size_t programs_run = 0;
size_t calls_run = 0;

RC_GTEST_PROP(ShmGroupProperty, RandomProgramsGiveTheExpectedResults, ()) {
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  const RandomProgram program = random_program(seed);
  ++programs_run;
  calls_run += program.calls.size();
  const std::string wrong = run_program(program, seed);
  if (!wrong.empty()) RC_FAIL(fmt::format("seed {}: {}", seed, wrong));
}

TEST(ShmGroupProperty, ProgramsOfAHundredFixedSeedsGiveTheExpectedResults) {
  constexpr uint64_t kSeeds = 100;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const RandomProgram program = random_program(seed);
    calls_run += program.calls.size();
    EXPECT_EQ(run_program(program, seed), "") << "seed " << seed;
  }
  programs_run += kSeeds;
  std::printf("covered %zu programs with %zu calls (seeds 1 to 100, and rapidcheck's)\n",
              programs_run, calls_run);
}

}  // namespace
}  // namespace muster::worker
