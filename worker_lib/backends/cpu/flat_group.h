// Collectives between some members of a group over their links: well-known algorithms, each a list
// of messages for an Exchange. Ranks here are positions in `ranks` (all members, or one per node).
//
//   barrier          dissemination (Hensgen, Finkel, Manber 1988)
//   broadcast        small: binomial tree; large: a chain of chunks
//   reduce           small: binomial tree; large: a chain of chunks
//   all_reduce       small: recursive doubling (Thakur, Rabenseifner, Gropp 2005); large: a ring
//                    (Patarasuk, Yuan 2009)
//   gather, scatter  many small, equal blocks: binomial tree; else direct
//   all_gather       small: direct between few ranks, Bruck (1997) if blocks are equal; else a ring
//   reduce_scatter   small: pairwise exchange; large: a ring
//   all_to_all       pairwise exchange
//
// Reductions give the same bits on all ranks and in every run: the order of the additions depends
// only on ranks and counts. Sizes are in bytes; `in` may equal `out`. One thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "worker_lib/backends/cpu/exchange.h"
#include "worker_lib/copy_bytes.h"
#include "worker_lib/failure.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// One of n slices of `count` elements; their sizes differ by at most one.
struct Slice {
  size_t first;
  size_t count;
};
Slice slice_of(size_t count, int n, int which);

// Offsets and sizes of the blocks of n ranks, in bytes.
class Blocks {
 public:
  // Contiguous blocks.
  Blocks(int n, size_t each) : n_(n), each_(each) {}
  Blocks(std::span<const size_t> counts, size_t element);
  // Blocks that are the slices of `count` elements.
  static Blocks split(size_t count, size_t element, int n);
  // Blocks of an operation with `counts`, or with its `count` for each rank if `counts` is empty.
  static Blocks of(const Operation& operation, const std::vector<size_t>& counts, int n);
  // Some of these blocks, in the order of `which`, at their original offsets.
  Blocks pick(std::span<const int> which) const;

  int n() const { return n_; }
  // True if all ranks know that all blocks are equal.
  bool uniform() const { return uniform_; }
  size_t offset(int block) const;
  size_t bytes(int block) const;
  size_t total() const;  // Bytes of all blocks.

 private:
  struct Extent {
    size_t offset;
    size_t bytes;
  };
  int n_ = 0;
  size_t each_ = 0;
  bool uniform_ = true;
  std::vector<Extent> extents_;  // Empty: equal, contiguous blocks.
};

// The pointers may be equal, and null if `bytes` is 0.
inline void copy_block(std::byte* to, const std::byte* from, size_t bytes) {
  if (to != from) copy_bytes(to, from, bytes);
}

// Memory kept between calls. Its contents are undefined.
class Scratch {
 public:
  std::byte* at_least(size_t bytes);

 private:
  std::unique_ptr<std::byte[]> memory_;
  size_t bytes_ = 0;
};

class FlatGroup {
 public:
  // `exchange` outlives it and has begun each call made here. `ranks`: group ranks; `me`: the
  // position of this rank among them. REQUIRES: at least two ranks.
  FlatGroup(Exchange& exchange, std::vector<int> ranks, int me);

  int size() const { return static_cast<int>(ranks_.size()); }

  Outcome<> barrier();
  Outcome<> broadcast(std::byte* data, size_t bytes, int root);
  Outcome<> reduce(const std::byte* in, std::byte* out, size_t count, const Reduction& reduction,
                   int root);
  Outcome<> all_reduce(const std::byte* in, std::byte* out, size_t count,
                       const Reduction& reduction);
  // Ranks other than the root use only their own block of `blocks` and ignore `out`.
  Outcome<> gather(const std::byte* in, std::byte* out, const Blocks& blocks, int root);
  Outcome<> scatter(const std::byte* in, std::byte* out, const Blocks& blocks, int root);
  Outcome<> all_gather(const std::byte* in, std::byte* out, const Blocks& blocks);
  Outcome<> reduce_scatter(const std::byte* in, std::byte* out, const Blocks& blocks,
                           const Reduction& reduction);
  Outcome<> all_to_all(const std::byte* in, const Blocks& sends, std::byte* out,
                       const Blocks& recvs);

 private:
  int peer(int position) const { return ranks_[static_cast<size_t>(position)]; }
  // Returns the position `by` steps to the right of `from` (negative: left), modulo size().
  int around(int from, int by) const { return ((from + by) % size() + size()) % size(); }

  // Runs a ring in which every rank sends its own block in the first step, and in each further step
  // passes on what it received in the previous one. See flat_ring.h.
  template <typename Receive>
  Outcome<> pass_around(const Blocks& blocks, int steps, const std::byte* own,
                        const std::byte* others, const Receive& receive);
  Outcome<> binomial_broadcast(std::byte* data, size_t bytes, int root);
  Outcome<> chain_broadcast(std::byte* data, size_t bytes, int root);
  Outcome<> binomial_reduce(const std::byte* in, std::byte* out, size_t count,
                            const Reduction& reduction, int root);
  Outcome<> chain_reduce(const std::byte* in, std::byte* out, size_t count,
                         const Reduction& reduction, int root);
  Outcome<> doubling_all_reduce(std::byte* data, size_t count, const Reduction& reduction);
  Outcome<> ring_all_reduce(const std::byte* in, std::byte* out, size_t count,
                            const Reduction& reduction);
  Outcome<> binomial_gather(const std::byte* in, std::byte* out, size_t bytes, int root);
  Outcome<> binomial_scatter(const std::byte* in, std::byte* out, size_t bytes, int root);
  Outcome<> bruck_all_gather(const std::byte* in, std::byte* out, size_t bytes);
  Outcome<> ring_all_gather(const std::byte* in, std::byte* out, const Blocks& blocks);
  Outcome<> direct_all_gather(const std::byte* in, std::byte* out, const Blocks& blocks);
  Outcome<> pairwise_reduce_scatter(const std::byte* in, std::byte* out, const Blocks& blocks,
                                    const Reduction& reduction);
  Outcome<> ring_reduce_scatter(const std::byte* in, std::byte* out, const Blocks& blocks,
                                const Reduction& reduction);

  Exchange& exchange_;
  std::vector<int> ranks_;
  int me_;
  Scratch scratch_;
};

Reduction reduction_of(const Operation& operation, int n);

Outcome<> run_flat(FlatGroup& group, const Operation& operation);

}  // namespace muster::worker
