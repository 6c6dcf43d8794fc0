// Selects the samples of a data set that this rank trains on.
//
//   muster::DistributedSampler sampler(images.size(), {.seed = 7});
//   for (unsigned epoch = 0; epoch < epochs; ++epoch) {
//     sampler.set_epoch(epoch);  // A new order, the same on all ranks.
//     for (size_t sample : sampler) train(images[sample]);
//   }
//
// The rule and the numbers are those of torch.utils.data.DistributedSampler: the same size, seed,
// epoch, rank and world size give the same indices in the same order as PyTorch 2 on a CPU, so
// programs in both languages can share a job or continue each other's runs. The rule is:
//
// 1. order = 0 .. size - 1, or with `shuffle` its Fisher-Yates permutation, drawn from a Mersenne
//    Twister (MT19937) that is seeded with the low 32 bits of seed + epoch.
// 2. Its length is made divisible by the number of ranks: extended by its own beginning (repeatedly
//    if needed), so that some samples occur twice; or, with `drop_last`, cut at its end.
// 3. Rank r takes order[r], order[r + ranks], order[r + 2 * ranks], ...
//
// Nothing is sent: each rank computes its own part, temporarily with memory for `size` numbers. Not
// thread-safe unless all threads only read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "muster/error.h"
#include "muster/muster.h"
#include "muster/types.h"

namespace muster {

struct SamplerOptions {
  std::optional<int> rank = {};   // nullopt: rank() of the job.
  std::optional<int> ranks = {};  // The number of parts; nullopt: world_size().
  bool shuffle = true;
  uint64_t seed = 0;       // The same on all ranks.
  bool drop_last = false;  // Omit up to ranks - 1 samples instead of repeating some.
};

class DistributedSampler {
 public:
  // Starts at epoch 0 of a data set of `size` samples. Throws DistributedError: invalid_argument
  // unless 0 <= rank < ranks; not_initialized if one is to come from the job and there is none.
  explicit DistributedSampler(size_t size, const SamplerOptions& options = {})
      : dataset_size_(size) {
    options_.rank = options.rank ? *options.rank : detail::not_negative(muster_rank());
    options_.ranks = options.ranks ? *options.ranks : detail::not_negative(muster_world_size());
    if (options_.rank < 0 || options_.rank >= options_.ranks)
      detail::refuse("DistributedSampler", "rank " + std::to_string(options_.rank) + " of " +
                                               std::to_string(options_.ranks) +
                                               "; give 0 <= rank < ranks");
    options_.shuffle = options.shuffle ? 1 : 0;
    options_.seed = options.seed;
    options_.drop_last = options.drop_last ? 1 : 0;
    size_t count = 0;
    ask(nullptr, count);
    indices_.resize(count);
    ask(indices_.data(), count);
  }

  // Call before each epoch. Has no effect without `shuffle`.
  void set_epoch(uint64_t epoch) {
    epoch_ = epoch;
    size_t count = 0;
    if (options_.shuffle != 0) ask(indices_.data(), count);
  }
  uint64_t epoch() const noexcept { return epoch_; }

  // This rank's samples of the epoch, in order (indices). Valid until set_epoch().
  span<const size_t> indices() const noexcept { return indices_; }
  auto begin() const noexcept { return indices_.begin(); }
  auto end() const noexcept { return indices_.end(); }
  size_t operator[](size_t i) const noexcept { return indices_[i]; }

  // Their number, equal on all ranks and in all epochs: size / ranks, rounded up, or down
  // (drop_last).
  size_t size() const noexcept { return indices_.size(); }

  // This rank's `i`-th batch: `batch` samples, or what is left; empty after the last. To resume in
  // the middle of an epoch start at a later i. REQUIRES: batch > 0.
  span<const size_t> batch(size_t i, size_t batch) const noexcept {
    // Computes the number of batches first, so that i * batch cannot wrap around.
    const size_t batches = size() / batch + (size() % batch != 0 ? 1 : 0);
    if (i >= batches) return {};
    return indices().subspan(i * batch, std::min(batch, size() - i * batch));
  }

 private:
  void ask(size_t* indices, size_t& count) const {
    detail::throw_unless_ok(muster_sample(dataset_size_, epoch_, &options_, indices, &count));
  }

  size_t dataset_size_;
  muster_sampler_options options_ MUSTER_SAMPLER_OPTIONS;
  uint64_t epoch_ = 0;
  std::vector<size_t> indices_;
};

}  // namespace muster
