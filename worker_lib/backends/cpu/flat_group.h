// Collectives between some members of a group over their links: well-known algorithms, each a list
// of messages for an Exchange. The ranks here are positions in `ranks` (all members, or one of each
// node); all of these make the same calls.
//
//   barrier          dissemination (Hensgen, Finkel, Manber 1988)
//   broadcast        binomial tree; a chain of chunks where it is large
//   reduce           binomial tree; a chain of chunks where it is large
//   all_reduce       recursive doubling (Thakur, Rabenseifner, Gropp 2005); a ring where it is
//                    large (Patarasuk, Yuan 2009)
//   gather, scatter  binomial tree where blocks are small, equal and many; else direct
//   all_gather       small: direct between few ranks, Bruck (1997) if blocks are equal; else a ring
//   reduce_scatter   pairwise exchange where it is small; else a ring
//   all_to_all       pairwise exchange
//
// Reductions give the same bits on all ranks and in every run: the order of the additions depends
// only on ranks and counts. Sizes are in bytes; buffers are in place where the pointers are equal.
// One thread at a time, that of the exchange.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "worker_lib/backends/cpu/exchange.h"
#include "worker_lib/failure.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// One of n slices of `count` elements, whose sizes differ by one at most.
struct Slice {
  size_t first;
  size_t count;
};
Slice slice_of(size_t count, int n, int which);

// Where the blocks of n ranks lie, in bytes.
class Blocks {
 public:
  // Contiguous.
  Blocks(int n, size_t each) : n_(n), each_(each) {}
  Blocks(std::span<const size_t> counts, size_t element);
  // The slices of `count` elements.
  static Blocks split(size_t count, size_t element, int n);
  // For an operation with `counts`, or with `count` for each block if those are empty.
  static Blocks of(const Operation& operation, const std::vector<size_t>& counts, int n);
  // Some of these blocks, in the order of `which`, at their offsets.
  Blocks pick(std::span<const int> which) const;

  int n() const { return n_; }
  // Whether all ranks know that all blocks are equal.
  bool uniform() const { return uniform_; }
  size_t offset(int block) const;
  size_t bytes(int block) const;
  size_t total() const;  // Of all blocks, in bytes.

 private:
  struct Extent {
    size_t offset;
    size_t bytes;
  };
  int n_ = 0;
  size_t each_ = 0;
  bool uniform_ = true;
  std::vector<Extent> extents_;  // Empty: equal blocks, contiguous.
};

// Both may be the same, and null where there are no bytes.
inline void copy_block(std::byte* to, const std::byte* from, size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

// Memory that is kept for the next call. Its contents are undefined.
class Scratch {
 public:
  std::byte* at_least(size_t bytes);

 private:
  std::unique_ptr<std::byte[]> memory_;
  size_t bytes_ = 0;
};

class FlatGroup {
 public:
  // `exchange` outlives it; the call is the one that the exchange was begun with. `ranks`: group
  // ranks; `me`: the position of this rank. REQUIRES: at least two ranks.
  FlatGroup(Exchange& exchange, std::vector<int> ranks, int me);

  int size() const { return static_cast<int>(ranks_.size()); }

  Outcome<> barrier();
  Outcome<> broadcast(std::byte* data, size_t bytes, int root);
  Outcome<> reduce(const std::byte* in, std::byte* out, size_t count, const Reduction& reduction,
                   int root);
  Outcome<> all_reduce(const std::byte* in, std::byte* out, size_t count,
                       const Reduction& reduction);
  // Except at the root, only block(me) of `blocks` is used, and `out` is ignored.
  Outcome<> gather(const std::byte* in, std::byte* out, const Blocks& blocks, int root);
  Outcome<> scatter(const std::byte* in, std::byte* out, const Blocks& blocks, int root);
  Outcome<> all_gather(const std::byte* in, std::byte* out, const Blocks& blocks);
  Outcome<> reduce_scatter(const std::byte* in, std::byte* out, const Blocks& blocks,
                           const Reduction& reduction);
  Outcome<> all_to_all(const std::byte* in, const Blocks& sends, std::byte* out,
                       const Blocks& recvs);

 private:
  int peer(int position) const { return ranks_[static_cast<size_t>(position)]; }
  // The position `by` steps to the right of `from` (negative: left), modulo size().
  int around(int from, int by) const;

  // A ring in which every rank passes on in each step what it received in the one before, and its
  // own block in the first. See flat_ring.h.
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

// The reduction of an operation over `n` ranks.
Reduction reduction_of(const Operation& operation, int n);

// Performs any collective over all members.
Outcome<> run_flat(FlatGroup& group, const Operation& operation);

}  // namespace muster::worker
