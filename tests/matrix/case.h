// One cell of the matrix: the operation, its data, how it is called and by which ranks. The rules
// say which combinations are valid; rows of indices (pairwise.h) become cases here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "muster/process_group.h"
#include "tests/matrix/pairwise.h"

namespace muster::matrix {

enum class Op {
  barrier,
  monitored_barrier,
  broadcast,
  reduce,
  all_reduce,
  gather,
  gather_v,
  all_gather,
  all_gather_v,
  scatter,
  scatter_v,
  reduce_scatter,
  reduce_scatter_v,
  all_to_all,
  all_to_all_v,
  send_recv,  // The root sends a block to each of the others.
  recv_any,   // The root receives a block of each of the others, in order of arrival.
  batch,      // All send to both neighbours of the ring and receive from both, in one batch.
  broadcast_bytes,
  all_gather_bytes,
};
enum class RootChoice { first, middle, last };
enum class CallKind {
  sync,
  async,
  overlapped,  // Three of the same kind in flight at once, awaited in reverse order.
};
enum class Place { apart, in_place };
enum class MemoryKind {
  plain,
  unaligned,  // Aligned to the element only.
  shared,     // Memory of ProcessGroup::allocate_shared().
  mixed,      // Each rank draws one of these.
};
enum class GroupKind {
  world,
  subset,  // Ranks drawn from the world, perhaps all of it, in a drawn order.
};
enum class Values {
  exact,  // Chosen so that every order of additions gives the same result.
  reals,  // Compared with a tolerance; all ranks must still agree bit by bit.
};

struct Case {
  Op op{};
  DType dtype{};
  ReduceOp reduce{};
  int members = 1;
  size_t size = 0;  // Elements of one block; of the largest in v operations.
  RootChoice root{};
  CallKind call{};
  Place place{};
  MemoryKind memory{};
  GroupKind group{};
  Values values{};

  int root_rank() const;
  bool is_float() const { return dtype >= DType::float16; }
};

const char* name_of(Op op);
// "reduce average of 1000 float16 between 4 of the world, root 2, async, in place, shared memory".
std::string describe(const Case& what);

// The options of a run that decide its cases.
struct Setting {
  Backend backend = Backend::cpu;
  std::vector<int> worlds;  // World sizes of all runs of the test.
  int planted_rank = -1;    // Rank whose input is corrupted, as a planted fault.
  int world_max() const;
};

// The dimensions in the order of Case's members, with the number of values of each.
std::vector<int> sizes_of(const Setting& setting);
Allows rules_of(const Setting& setting);
Case case_of(const Row& row);

// All cases of the setting: a cover of all pairs, or with `everything` all combinations of
// operation, dtype, reduction, members, size, root, call and place, with the rest drawn.
struct Cases {
  std::vector<Case> cases;
  size_t pairs = 0;  // Number of covered pairs; 0 with `everything`.
};
Cases cases_of(const Setting& setting, uint64_t seed, bool everything);

}  // namespace muster::matrix
