#include "muster/sampler.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "muster/error.h"
#include "muster/init.h"
#include "rendezvous/base/text.h"
#include "worker_lib/raise.h"

namespace muster {

namespace {

// We reproduce torch.randperm(size) on a CPU after torch.manual_seed(seed), with the bias of its
// remainders. Below this size it draws 32 bits per step of Fisher and Yates' shuffle from the
// front, from here on 64 bits per step of the inside-out variant.
constexpr size_t kSmallPermutation = std::numeric_limits<uint32_t>::max() / 20;

void permute_small(std::vector<size_t>& order, std::mt19937& draw) {
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    std::swap(order[i], order[i + draw() % (order.size() - i)]);
  }
}

void permute_large(std::vector<size_t>& order, std::mt19937& draw) {
  for (size_t i = 0; i < order.size(); ++i) {
    const uint64_t high = draw();
    const uint64_t drawn = high << 32 | draw();
    std::swap(order[i], order[drawn % (i + 1)]);
  }
}

std::vector<size_t> order_of_epoch(size_t size, const SamplerOptions& options, uint64_t epoch) {
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), size_t{0});
  if (!options.shuffle) return order;
  std::mt19937 draw(static_cast<uint32_t>(options.seed + epoch));
  if (size < kSmallPermutation) {
    permute_small(order, draw);
  } else {
    permute_large(order, draw);
  }
  return order;
}

}  // namespace

DistributedSampler::DistributedSampler(size_t size, const SamplerOptions& options)
    : dataset_size_(size), rank_(0), ranks_(0), options_(options) {
  const int ranks = options.ranks ? *options.ranks : world_size();
  const int rank = options.rank ? *options.rank : muster::rank();
  if (rank < 0 || rank >= ranks) {
    worker::raise({ErrorCode::invalid_argument,
                   fmt::format("DistributedSampler: rank {} of {}; give 0 <= rank < ranks", rank,
                               counted(ranks, "rank"))},
                  "DistributedSampler", {});
  }
  rank_ = static_cast<size_t>(rank);
  ranks_ = static_cast<size_t>(ranks);
  set_epoch(0);
}

void DistributedSampler::set_epoch(uint64_t epoch) {
  const bool same_order = !options_.shuffle && !indices_.empty();
  epoch_ = epoch;
  if (same_order) return;
  const std::vector<size_t> order = order_of_epoch(dataset_size_, options_, epoch);
  const size_t whole = dataset_size_ / ranks_;
  const bool lengthen = !options_.drop_last && dataset_size_ % ranks_ != 0;
  indices_.resize(whole + (lengthen ? 1 : 0));
  for (size_t i = 0; i < indices_.size(); ++i) {
    // The padding: past its end, the order starts again.
    indices_[i] = order[(rank_ + i * ranks_) % dataset_size_];
  }
}

std::span<const size_t> DistributedSampler::batch(size_t i, size_t batch) const noexcept {
  // Computes the number of batches first, so that i * batch cannot wrap around.
  const size_t batches = indices_.size() / batch + (indices_.size() % batch != 0 ? 1 : 0);
  if (i >= batches) return {};
  return indices().subspan(i * batch, std::min(batch, indices_.size() - i * batch));
}

}  // namespace muster
