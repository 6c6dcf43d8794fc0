#include "worker_lib/group/group_checks.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

// Rank 1 of 3.
constexpr GroupShape kShape{3, 1};

alignas(8) std::array<std::byte, 4096> memory;
alignas(8) std::array<std::byte, 4096> other_memory;

Buffer floats(size_t count, size_t offset = 0) {
  return {memory.data() + offset * 4, count, DType::float32};
}
Buffer others(size_t count, size_t offset = 0) {
  return {other_memory.data() + offset * 4, count, DType::float32};
}
Buffer ints(size_t count) {
  return {other_memory.data(), count, DType::int32};
}

const std::vector<size_t> kCounts{1, 2, 3};
const std::vector<size_t> kTwoCounts{1, 2};
const std::vector<size_t> kEqual{2, 2, 2};
const std::vector<size_t> kHuge{SIZE_MAX, 2, 2};
const std::vector<size_t> kMirrored{3, 2, 1};
const std::vector<size_t> kUnmirrored{3, 1, 2};

// Returns why the call is refused; empty: it is sound.
std::string checked(const CollectiveCall& call, const GroupShape& shape, Operation& operation) {
  std::string why;
  const bool sound = check_collective(call, shape, operation, why);
  EXPECT_EQ(sound, why.empty());
  return why;
}

struct Refusal {
  const char* what;
  CollectiveCall call;
  const char* text;
  GroupShape shape = kShape;
};

CollectiveCall broadcast(Buffer data, int root) {
  return {.kind = OpKind::broadcast, .in = data, .out = data, .root = root};
}

std::vector<Refusal> refusals() {
  const Device gpu = Device::cuda(0);
  return {
      {"a root above", broadcast(floats(1), 3),
       "root 3 is not in the group, whose ranks are 0 to 2"},
      {"a root below", broadcast(floats(1), -1),
       "root -1 is not in the group, whose ranks are 0 to 2"},
      {"a root of a group of one",
       broadcast(floats(1), 1),
       "root 1 is not in the group, whose one rank is 0",
       {1, 0}},
      {"null with a count", broadcast({nullptr, 4, DType::float32}, 0),
       "in has 4 elements and a null pointer"},
      {"no dtype", broadcast({memory.data(), 1, static_cast<DType>(77)}, 0),
       "in has the dtype 77, which does not exist"},
      {"a count that no memory has", broadcast({memory.data(), SIZE_MAX / 2, DType::float64}, 0),
       "in has 9223372036854775807 elements, more than any memory can hold"},
      {"odd memory", broadcast({memory.data() + 2, 1, DType::float32}, 0),
       "in is not aligned for float32: its address must be a multiple of 4"},
      {"counts that differ",
       {.kind = OpKind::all_reduce, .in = floats(3), .out = others(4)},
       "out has 4 elements where in has 3"},
      {"null out",
       {.kind = OpKind::all_reduce, .in = floats(3), .out = {nullptr, 3, DType::float32}},
       "out has 3 elements and a null pointer"},
      {"dtypes that differ",
       {.kind = OpKind::all_reduce, .in = floats(3), .out = ints(3)},
       "in is float32 and out is int32; give both the same dtype"},
      {"places that differ",
       {.kind = OpKind::all_reduce,
        .in = floats(3),
        .out = {other_memory.data(), 3, DType::float32, gpu}},
       "in is on the CPU and out is on cuda:0; give both the same place"},
      {"bits of floats",
       {.kind = OpKind::all_reduce, .in = floats(3), .out = floats(3), .reduce = ReduceOp::bxor},
       "bxor is for integers, not for float32"},
      {"no reduction",
       {.kind = OpKind::all_reduce,
        .in = floats(3),
        .out = floats(3),
        .reduce = static_cast<ReduceOp>(8)},
       "there is no reduction 8"},
      {"out too small at the root",
       {.kind = OpKind::reduce, .in = floats(3), .out = others(2), .root = 1},
       "out has 2 elements where in has 3"},
      {"no out at the root",
       {.kind = OpKind::reduce, .in = floats(3), .root = 1},
       "out has 0 elements where in has 3"},
      {"gathered too few",
       {.kind = OpKind::gather, .in = floats(3), .out = others(8), .root = 1},
       "out has 8 elements where 3 ranks x 3 (in) = 9 are needed"},
      {"gathered too many",
       {.kind = OpKind::all_gather, .in = floats(3), .out = others(10)},
       "out has 10 elements where 3 ranks x 3 (in) = 9 are needed"},
      {"scattered too few",
       {.kind = OpKind::scatter, .in = floats(5), .out = others(2), .root = 1},
       "in has 5 elements where 3 ranks x 2 (out) = 6 are needed"},
      {"scattered and reduced too few",
       {.kind = OpKind::reduce_scatter, .in = floats(7), .out = others(2)},
       "in has 7 elements where 3 ranks x 2 (out) = 6 are needed"},
      {"blocks that are not equal",
       {.kind = OpKind::all_to_all, .in = floats(7), .out = others(7)},
       "7 elements are not 3 equal blocks; all_to_all_v takes unequal ones"},
      {"all to all of different counts",
       {.kind = OpKind::all_to_all, .in = floats(6), .out = others(9)},
       "out has 9 elements where in has 6"},
      {"all to all in place",
       {.kind = OpKind::all_to_all, .in = floats(6), .out = floats(6)},
       "in and out overlap, and this operation cannot be done in place"},
      {"overlap",
       {.kind = OpKind::all_reduce, .in = floats(6), .out = floats(6, 1)},
       "in and out overlap without being the same; give the same memory, or memory that does not "
       "overlap"},
      {"overlap by the first byte",
       {.kind = OpKind::all_reduce, .in = floats(6, 5), .out = floats(6)},
       "in and out overlap without being the same; give the same memory, or memory that does not "
       "overlap"},
      {"another rank's block",
       {.kind = OpKind::all_gather, .in = floats(2), .out = floats(6)},
       "in and out overlap; for an operation in place the smaller buffer must begin at element 2 "
       "of "
       "the larger"},
      {"another rank's block of unequal ones",
       {.kind = OpKind::all_gather,
        .in = floats(2, 2),
        .out = floats(6),
        .is_v = true,
        .recv_counts = kCounts},
       "in and out overlap; for an operation in place the smaller buffer must begin at element 1 "
       "of "
       "the larger"},
      {"too few counts",
       {.kind = OpKind::all_gather,
        .in = floats(2),
        .out = others(3),
        .is_v = true,
        .recv_counts = kTwoCounts},
       "counts has 2 numbers where the group has 3 ranks"},
      {"counts of another sum",
       {.kind = OpKind::all_gather,
        .in = floats(2),
        .out = others(7),
        .is_v = true,
        .recv_counts = kCounts},
       "out has 7 elements where counts add up to 6"},
      {"counts beyond memory",
       {.kind = OpKind::all_gather,
        .in = floats(2),
        .out = others(7),
        .is_v = true,
        .recv_counts = kHuge},
       "counts add up to more than any memory can hold"},
      {"an own count of its own",
       {.kind = OpKind::all_gather,
        .in = floats(3),
        .out = others(6),
        .is_v = true,
        .recv_counts = kCounts},
       "in has 3 elements where counts[1], of this rank, is 2"},
      {"scatter_v at the root",
       {.kind = OpKind::scatter,
        .in = floats(6),
        .out = others(1),
        .root = 1,
        .is_v = true,
        .send_counts = kCounts},
       "out has 1 element where counts[1], of this rank, is 2"},
      {"reduce_scatter_v",
       {.kind = OpKind::reduce_scatter,
        .in = floats(5),
        .out = others(2),
        .is_v = true,
        .send_counts = kCounts},
       "in has 5 elements where counts add up to 6"},
      {"all_to_all_v that sends too little",
       {.kind = OpKind::all_to_all,
        .in = floats(5),
        .out = others(6),
        .is_v = true,
        .send_counts = kCounts,
        .recv_counts = kMirrored},
       "in has 5 elements where send_counts add up to 6"},
      {"all_to_all_v that takes too much",
       {.kind = OpKind::all_to_all,
        .in = floats(6),
        .out = others(7),
        .is_v = true,
        .send_counts = kCounts,
        .recv_counts = kMirrored},
       "out has 7 elements where recv_counts add up to 6"},
      {"all_to_all_v with itself",
       {.kind = OpKind::all_to_all,
        .in = floats(6),
        .out = others(6),
        .is_v = true,
        .send_counts = kCounts,
        .recv_counts = kUnmirrored},
       "this rank sends 2 elements to itself and expects 1"},
  };
}

TEST(GroupChecks, EveryUnsoundCallIsRefusedInOneSentence) {
  const std::vector<Refusal> all = refusals();
  for (const Refusal& one : all) {
    Operation operation;
    EXPECT_EQ(checked(one.call, one.shape, operation), one.text) << one.what;
  }
  std::printf("refusals looked at: %zu\n", all.size());
}

TEST(GroupChecks, TransfersAreRefusedInOneSentence) {
  struct Case {
    Transfer transfer;
    const char* text;
    GroupShape shape = kShape;
  };
  const std::vector<Case> cases = {
      {{.kind = OpKind::send, .data = memory.data(), .count = 1, .peer = 3},
       "peer 3 is not in the group, whose ranks are 0 to 2"},
      {{.kind = OpKind::send, .data = memory.data(), .count = 1, .peer = -1},
       "peer -1 is not in the group, whose ranks are 0 to 2"},
      {{.kind = OpKind::recv, .data = memory.data(), .count = 1, .peer = -2},
       "the peer is below 0; recv_any() receives from any rank"},
      {{.kind = OpKind::recv, .data = memory.data(), .count = 1, .peer = 1},
       "peer 1 is this rank itself; copy the memory instead"},
      {{.kind = OpKind::send, .data = memory.data(), .count = 1, .peer = 0, .tag = -1},
       "tag -1 is below 0"},
      {{.kind = OpKind::send, .data = nullptr, .count = 1, .peer = 0},
       "data has 1 element and a null pointer"},
      {{.kind = OpKind::recv, .data = memory.data(), .count = 1, .peer = -1},
       "the group has no other rank that could send",
       {1, 0}},
      {{.kind = OpKind::recv, .data = memory.data(), .count = 1, .peer = -1}, ""},
      {{.kind = OpKind::send, .data = nullptr, .count = 0, .peer = 2}, ""},
  };
  for (const Case& one : cases) {
    std::string why;
    const bool sound = check_transfer(one.transfer, one.shape, why);
    EXPECT_EQ(why, one.text);
    EXPECT_EQ(sound, why.empty());
  }
}

// A sound call and the operation that the backends get (see the table of operation.h).
struct Sound {
  const char* what;
  CollectiveCall call;
  size_t count;
  bool is_v = false;
  std::vector<size_t> send_counts = {};
  std::vector<size_t> recv_counts = {};
};

std::vector<Sound> sound_calls() {
  return {
      {"barrier", {.kind = OpKind::barrier}, 0},
      {"broadcast", broadcast(floats(5), 2), 5},
      {"broadcast of nothing", broadcast({}, 0), 0},
      {"reduce at the root",
       {.kind = OpKind::reduce, .in = floats(5), .out = others(5), .root = 1},
       5},
      {"reduce elsewhere", {.kind = OpKind::reduce, .in = floats(5), .root = 0}, 5},
      {"reduce elsewhere with an out that is not looked at",
       {.kind = OpKind::reduce, .in = floats(5), .out = {nullptr, 9, DType::int8}, .root = 0},
       5},
      {"all_reduce in place", {.kind = OpKind::all_reduce, .in = floats(5), .out = floats(5)}, 5},
      {"all_reduce of nothing", {.kind = OpKind::all_reduce}, 0},
      {"gather at the root",
       {.kind = OpKind::gather, .in = floats(2), .out = others(6), .root = 1},
       2},
      {"gather in place",
       {.kind = OpKind::gather, .in = floats(2, 2), .out = floats(6), .root = 1},
       2},
      {"gather elsewhere", {.kind = OpKind::gather, .in = floats(2), .root = 0}, 2},
      {"all_gather in place",
       {.kind = OpKind::all_gather, .in = floats(2, 2), .out = floats(6)},
       2},
      {"scatter at the root",
       {.kind = OpKind::scatter, .in = floats(6), .out = others(2), .root = 1},
       2},
      {"scatter elsewhere", {.kind = OpKind::scatter, .out = others(2), .root = 0}, 2},
      {"reduce_scatter", {.kind = OpKind::reduce_scatter, .in = floats(6), .out = others(2)}, 2},
      {"reduce_scatter in place",
       {.kind = OpKind::reduce_scatter, .in = floats(6), .out = floats(2, 2)},
       2},
      {"all_to_all", {.kind = OpKind::all_to_all, .in = floats(6), .out = others(6)}, 2},
      {"gather_v at the root",
       {.kind = OpKind::gather,
        .in = floats(2),
        .out = others(6),
        .root = 1,
        .is_v = true,
        .recv_counts = kCounts},
       2,
       true,
       {},
       kCounts},
      {"gather_v at the root of equal counts, which others cannot know",
       {.kind = OpKind::gather,
        .in = floats(2),
        .out = others(6),
        .root = 1,
        .is_v = true,
        .recv_counts = kEqual},
       2,
       true,
       {},
       kEqual},
      {"gather_v elsewhere",
       {.kind = OpKind::gather, .in = floats(4), .root = 0, .is_v = true},
       4,
       true},
      {"scatter_v elsewhere",
       {.kind = OpKind::scatter, .out = others(4), .root = 0, .is_v = true},
       4,
       true},
      {"scatter_v at the root",
       {.kind = OpKind::scatter,
        .in = floats(6),
        .out = others(2),
        .root = 1,
        .is_v = true,
        .send_counts = kCounts},
       2,
       true,
       kCounts},
      {"all_gather_v",
       {.kind = OpKind::all_gather,
        .in = floats(2),
        .out = others(6),
        .is_v = true,
        .recv_counts = kCounts},
       2,
       true,
       {},
       kCounts},
      {"all_gather_v in place",
       {.kind = OpKind::all_gather,
        .in = floats(2, 1),
        .out = floats(6),
        .is_v = true,
        .recv_counts = kCounts},
       2,
       true,
       {},
       kCounts},
      {"all_gather_v of equal counts is all_gather",
       {.kind = OpKind::all_gather,
        .in = floats(2),
        .out = others(6),
        .is_v = true,
        .recv_counts = kEqual},
       2},
      {"reduce_scatter_v",
       {.kind = OpKind::reduce_scatter,
        .in = floats(6),
        .out = others(2),
        .is_v = true,
        .send_counts = kCounts},
       2,
       true,
       kCounts},
      {"all_to_all_v",
       {.kind = OpKind::all_to_all,
        .in = floats(6),
        .out = others(6),
        .is_v = true,
        .send_counts = kCounts,
        .recv_counts = kMirrored},
       0,
       true,
       kCounts,
       kMirrored},
  };
}

TEST(GroupChecks, SoundCallsBecomeOperationsAsTheBackendsExpectThem) {
  const std::vector<Sound> all = sound_calls();
  for (const Sound& one : all) {
    Operation operation;
    EXPECT_EQ(checked(one.call, kShape, operation), "") << one.what;
    EXPECT_EQ(operation.kind, one.call.kind) << one.what;
    EXPECT_EQ(operation.count, one.count) << one.what;
    EXPECT_EQ(operation.is_v, one.is_v) << one.what;
    EXPECT_EQ(operation.send_counts, one.send_counts) << one.what;
    EXPECT_EQ(operation.recv_counts, one.recv_counts) << one.what;
  }
  std::printf("sound calls looked at: %zu\n", all.size());
}

TEST(GroupChecks, TheDtypeComesFromTheBufferThatIsUsed) {
  Operation operation;
  EXPECT_EQ(checked({.kind = OpKind::scatter, .out = ints(2), .root = 0}, kShape, operation), "");
  EXPECT_EQ(operation.dtype, DType::int32);
  EXPECT_EQ(operation.in, nullptr);
  EXPECT_EQ(operation.out, other_memory.data());
}

TEST(GroupChecks, EveryIntegerTypeTakesBitReductionsAndNoFloatDoes) {
  for (int dtype = 0; dtype <= static_cast<int>(DType::float64); ++dtype) {
    for (const ReduceOp op : {ReduceOp::band, ReduceOp::bor, ReduceOp::bxor}) {
      const Buffer data(memory.data(), 8, static_cast<DType>(dtype));
      Operation operation;
      const std::string why = checked(
          {.kind = OpKind::all_reduce, .in = data, .out = data, .reduce = op}, kShape, operation);
      EXPECT_EQ(why.empty(), dtype <= static_cast<int>(DType::int64)) << why;
    }
  }
}

TEST(GroupChecks, AdjacentBuffersDoNotOverlap) {
  Operation operation;
  EXPECT_EQ(checked({.kind = OpKind::all_reduce, .in = floats(6), .out = floats(6, 6)}, kShape,
                    operation),
            "");
  EXPECT_EQ(checked({.kind = OpKind::all_reduce, .in = floats(6, 6), .out = floats(6)}, kShape,
                    operation),
            "");
  EXPECT_EQ(
      checked({.kind = OpKind::all_to_all, .in = floats(0), .out = floats(0)}, kShape, operation),
      "");
}

}  // namespace
}  // namespace muster::worker
