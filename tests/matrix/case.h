// One cell of the matrix: which operation, on what, how called, between whom. The rules say which
// combinations mean something; rows of indices (pairwise.h) become cases here.
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
  recv_any,   // The root receives a block of each of the others, from whoever sends first.
  batch,      // All send to both neighbours of the ring and receive from both, in one batch.
  broadcast_bytes,
  all_gather_bytes,
};
enum class RootChoice { first, middle, last };
enum class CallKind {
  sync,
  async,
  overlapped,  // Three of the same kind under way at the same time, waited for backwards.
};
enum class Place { apart, in_place };
enum class MemoryKind {
  plain,
  unaligned,  // Aligned to the element only.
  shared,     // Of ProcessGroup::allocate_shared().
  mixed,      // Each rank draws one of these.
};
enum class GroupKind {
  world,
  subset,  // Ranks drawn from a larger world (or all of it), in an order drawn as well.
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
  size_t size = 0;  // Elements of one block; of the v operations the largest.
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
// "all_reduce average of 1001 float16 on 4 of the world, root 2, async, in place, shared memory".
std::string describe(const Case& what);

// What a run of the program can do.
struct Setting {
  Backend backend = Backend::cpu;
  std::vector<int> worlds;  // World sizes that the whole test is run with.
  int planted_rank = -1;    // A rank of the job whose data is not what all expect: a planted fault.
  int world_max() const;
};

// The dimensions in the order of Case's members, with the number of values of each.
std::vector<int> sizes_of(const Setting& setting);
Allows rules_of(const Setting& setting);
Case case_of(const Row& row);

// All cases of the setting. Without `everything` the pairs are covered; with it, all combinations
// of the dimensions that the operations know (operation, dtype, reduction, members, size, root,
// call, place), and a drawn choice of the rest.
struct Cases {
  std::vector<Case> cases;
  size_t pairs = 0;  // Covered; 0 with `everything`.
};
Cases cases_of(const Setting& setting, uint64_t seed, bool everything);

}  // namespace muster::matrix
