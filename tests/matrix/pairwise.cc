#include "tests/matrix/pairwise.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "rendezvous/base/prng.h"

namespace muster::matrix {
namespace {

constexpr int kCandidates = 8;

bool completed_from(const std::vector<int>& sizes, const Allows& allows, Row& row, size_t d) {
  while (d < row.size() && row[d] != kUnset)
    ++d;
  if (d == row.size()) return true;
  for (int value = 0; value < sizes[d]; ++value) {
    row[d] = value;
    if (allows(row) && completed_from(sizes, allows, row, d + 1)) return true;
  }
  row[d] = kUnset;
  return false;
}

class CoverMaker {
 public:
  CoverMaker(const std::vector<int>& sizes, const Allows& allows, uint64_t seed)
      : sizes_(sizes), allows_(allows), prng_(seed), order_(sizes.size()) {
    first_.resize(sizes.size());
    std::exclusive_scan(sizes.begin(), sizes.end(), first_.begin(), 0);
    values_ = first_.empty() ? 0 : first_.back() + sizes.back();
    std::iota(order_.begin(), order_.end(), size_t{0});
    find_pairs();
  }

  Cover make() {
    Cover cover;
    cover.pairs = missing_count_;
    while (missing_count_ > 0) {
      Row best;
      size_t best_gain = 0;
      for (int i = 0; i < kCandidates; ++i) {
        Row row = candidate();
        const size_t gain = gain_of(row);
        if (gain > best_gain) {
          best = std::move(row);
          best_gain = gain;
        }
      }
      take(best);
      cover.rows.push_back(std::move(best));
    }
    return cover;
  }

 private:
  // Numbers the values of all dimensions; a pair is two such numbers, the lower first.
  int number(size_t d, int value) const { return first_[d] + value; }
  char& missing(int a, int b) {
    return missing_[static_cast<size_t>(std::min(a, b) * values_ + std::max(a, b))];
  }

  void find_pairs() {
    missing_.assign(static_cast<size_t>(values_ * values_), 0);
    for (size_t a = 0; a < sizes_.size(); ++a) {
      for (size_t b = a + 1; b < sizes_.size(); ++b)
        find_pairs_of(a, b);
    }
  }

  void find_pairs_of(size_t a, size_t b) {
    for (int i = 0; i < sizes_[a]; ++i) {
      for (int j = 0; j < sizes_[b]; ++j) {
        Row row(sizes_.size(), kUnset);
        row[a] = i;
        row[b] = j;
        if (!can_be_completed(sizes_, allows_, row)) continue;
        missing(number(a, i), number(b, j)) = 1;
        ++missing_count_;
      }
    }
  }

  // Starts a row with the first missing pair at or after a random place.
  Row start() {
    const size_t from = prng_.below(missing_.size());
    size_t at = from;
    while (missing_[at] == 0)
      at = (at + 1) % missing_.size();
    Row row(sizes_.size(), kUnset);
    set_number(row, static_cast<int>(at) / values_);
    set_number(row, static_cast<int>(at) % values_);
    return row;
  }

  void set_number(Row& row, int number) {
    size_t d = sizes_.size() - 1;
    while (first_[d] > number)
      --d;
    row[d] = number - first_[d];
  }

  Row candidate() {
    Row row = start();
    for (size_t i = order_.size(); i > 1; --i)
      std::swap(order_[i - 1], order_[prng_.below(i)]);
    for (const size_t d : order_) {
      if (row[d] == kUnset) row[d] = best_value(row, d);
    }
    return row;
  }

  // Returns the allowed value that adds most missing pairs to the row, at random among equals.
  int best_value(Row& row, size_t d) {
    int best = kUnset;
    size_t best_gain = 0;
    uint64_t ties = 0;
    for (int value = 0; value < sizes_[d]; ++value) {
      row[d] = value;
      if (!allows_(row) || !can_be_completed(sizes_, allows_, row)) continue;
      const size_t gain = gain_with(row, d);
      if (best != kUnset && gain < best_gain) continue;
      ties = best != kUnset && gain == best_gain ? ties + 1 : 1;
      if (ties == 1 || prng_.below(ties) == 0) best = value;
      best_gain = gain;
    }
    return best;
  }

  size_t gain_with(const Row& row, size_t d) {
    size_t gain = 0;
    for (size_t other = 0; other < row.size(); ++other) {
      if (other == d || row[other] == kUnset) continue;
      gain += static_cast<size_t>(missing(number(d, row[d]), number(other, row[other])));
    }
    return gain;
  }

  size_t gain_of(const Row& row) {
    size_t twice = 0;
    for (size_t d = 0; d < row.size(); ++d)
      twice += gain_with(row, d);
    return twice / 2;
  }

  void take(const Row& row) {
    for (size_t a = 0; a < row.size(); ++a) {
      for (size_t b = a + 1; b < row.size(); ++b) {
        char& pair = missing(number(a, row[a]), number(b, row[b]));
        missing_count_ -= static_cast<size_t>(pair);
        pair = 0;
      }
    }
  }

  const std::vector<int>& sizes_;
  const Allows& allows_;
  Prng prng_;
  std::vector<int> first_;
  int values_ = 0;
  std::vector<char> missing_;
  size_t missing_count_ = 0;
  std::vector<size_t> order_;
};

void rows_from(const std::vector<int>& sizes, const Allows& allows,
               const std::function<void(const Row&)>& call, Row& row, size_t d) {
  if (d == row.size()) {
    call(row);
    return;
  }
  for (int value = 0; value < sizes[d]; ++value) {
    row[d] = value;
    if (allows(row)) rows_from(sizes, allows, call, row, d + 1);
  }
  row[d] = kUnset;
}

}  // namespace

bool can_be_completed(const std::vector<int>& sizes, const Allows& allows, Row row) {
  return allows(row) && completed_from(sizes, allows, row, 0);
}

Cover cover_pairs(const std::vector<int>& sizes, const Allows& allows, uint64_t seed) {
  return CoverMaker(sizes, allows, seed).make();
}

void for_each_row(const std::vector<int>& sizes, const Allows& allows,
                  const std::function<void(const Row&)>& call) {
  Row row(sizes.size(), kUnset);
  rows_from(sizes, allows, call, row, 0);
}

}  // namespace muster::matrix
