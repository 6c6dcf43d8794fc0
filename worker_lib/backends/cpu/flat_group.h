// Collectives between some members of a group over their links: the known algorithms, each a list
// of messages for an Exchange. The ranks here are positions in `ranks` (all members, or one of each
// node); every one of them calls the same.
//
//   barrier          dissemination (Hensgen, Finkel, Manber 1988)
//   broadcast        binomial tree; a chain of chunks where it is large
//   reduce           binomial tree; a chain of chunks where it is large
//   all_reduce       recursive doubling (Thakur, Rabenseifner, Gropp 2005); a ring where it is
//                    large (Patarasuk, Yuan 2009)
//   gather, scatter  binomial tree where blocks are small, equal and many; else direct
//   all_gather       Bruck (1997) where blocks are small and equal; else a ring
//   reduce_scatter   pairwise exchange where it is small; else a ring
//   all_to_all       pairwise exchange
//
// Results of reductions are the same bits on all ranks and in every run: the order of the additions
// depends on ranks and counts alone. Sizes are bytes; buffers are in place where the pointers are
// equal. One thread at a time, that of the exchange.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "worker_lib/backends/cpu/exchange.h"
#include "worker_lib/failure.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// Where the blocks of n ranks lie, in bytes.
class Blocks {
 public:
  // One behind the other.
  Blocks(int n, size_t each) : n_(n), each_(each) {}
  Blocks(std::span<const size_t> counts, size_t element);
  // `count` elements in n blocks that differ by one element at most.
  static Blocks split(size_t count, size_t element, int n);
  // Of an operation whose counts are `counts`, or `count` each where that is empty.
  static Blocks of(const Operation& operation, const std::vector<size_t>& counts, int n);
  // Some of these, in that order, where they are.
  Blocks pick(std::span<const int> which) const;

  int n() const { return n_; }
  // Whether all ranks know that all blocks are equal.
  bool uniform() const { return uniform_; }
  size_t offset(int block) const;
  size_t bytes(int block) const;
  size_t total() const;  // Of their bytes.

 private:
  struct Extent {
    size_t offset;
    size_t bytes;
  };
  int n_ = 0;
  size_t each_ = 0;
  bool uniform_ = true;
  std::vector<Extent> extents_;  // Empty: equal blocks, one behind the other.
};

// Memory that is kept for the next call. Its contents are nobody's.
class Scratch {
 public:
  std::byte* at_least(size_t bytes);

 private:
  std::unique_ptr<std::byte[]> memory_;
  size_t bytes_ = 0;
};

class FlatGroup {
 public:
  // `exchange` outlives it; what it was begun with is the call that is performed. `ranks`: group
  // ranks; `me`: which of them this is.
  FlatGroup(Exchange& exchange, std::vector<int> ranks, int me);

  int size() const { return static_cast<int>(ranks_.size()); }

  Outcome<> barrier();
  Outcome<> broadcast(std::byte* data, size_t bytes, int root);
  Outcome<> reduce(const std::byte* in, std::byte* out, size_t count, const Reduction& reduction,
                   int root);
  Outcome<> all_reduce(const std::byte* in, std::byte* out, size_t count,
                       const Reduction& reduction);
  // Elsewhere than at the root only block(me) of `blocks` is looked at, and `out` is not.
  Outcome<> gather(const std::byte* in, std::byte* out, const Blocks& blocks, int root);
  Outcome<> scatter(const std::byte* in, std::byte* out, const Blocks& blocks, int root);
  Outcome<> all_gather(const std::byte* in, std::byte* out, const Blocks& blocks);
  Outcome<> reduce_scatter(const std::byte* in, std::byte* out, const Blocks& blocks,
                           const Reduction& reduction);
  Outcome<> all_to_all(const std::byte* in, const Blocks& sends, std::byte* out,
                       const Blocks& recvs);

 private:
  int peer(int position) const { return ranks_[static_cast<size_t>(position)]; }
  // The one `by` positions to the right (or left) of `from`, around.
  int around(int from, int by) const;

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
