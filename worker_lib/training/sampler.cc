#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "worker_lib/c_abi/c_abi.h"
#include "worker_lib/joining/job.h"

using namespace muster;
using namespace muster::c_abi;

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

std::vector<size_t> order_of_epoch(size_t size, const muster_sampler_options& options,
                                   uint64_t epoch) {
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), size_t{0});
  if (options.shuffle == 0) return order;
  std::mt19937 draw(static_cast<uint32_t>(options.seed + epoch));
  if (size < kSmallPermutation) {
    permute_small(order, draw);
  } else {
    permute_large(order, draw);
  }
  return order;
}

// This rank's part.
struct Part {
  size_t rank;
  size_t ranks;
};

Part part_of(const muster_sampler_options& options) {
  const int ranks = options.ranks >= 0 ? options.ranks : worker::require_job()->world_size();
  const int rank = options.rank >= 0 ? options.rank : worker::require_job()->rank();
  if (rank >= ranks) refuse(fmt::format("rank {} of {}; give 0 <= rank < ranks", rank, ranks));
  return {static_cast<size_t>(rank), static_cast<size_t>(ranks)};
}

}  // namespace

muster_status muster_sample(size_t size, uint64_t epoch, const muster_sampler_options* options,
                            size_t* indices, size_t* count) {
  return guarded(__func__, [&] {
    require_out(count, "count");
    const muster_sampler_options initial MUSTER_SAMPLER_OPTIONS;
    const muster_sampler_options& given = options_or(options, initial, "muster_sampler_options");
    const auto [rank, ranks] = part_of(given);
    const bool lengthen = given.drop_last == 0 && size % ranks != 0;
    const size_t samples = size / ranks + (lengthen ? 1 : 0);
    if (indices != nullptr) {
      const std::vector<size_t> order = order_of_epoch(size, given, epoch);
      for (size_t i = 0; i < samples; ++i) {
        // The padding: past its end, the order starts again.
        indices[i] = order[(rank + i * ranks) % size];
      }
    }
    *count = samples;
  });
}
