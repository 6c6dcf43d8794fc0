// Covers all pairs with few rows: for any two dimensions, each combination of their values that the
// rules allow is in at least one row. Most faults that depend on parameters need only one or two
// values to show (Kuhn, Wallace, Gallo 2004), so a few hundred rows stand for a million.
//
// Greedy, after AETG (Cohen, Dalal, Fredman, Patton 1997): every row starts from a missing pair and
// takes, dimension by dimension, the value that adds most missing pairs; the best of a few such
// rows is kept. Equal seeds give equal rows on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace muster::matrix {

// A value's index for each dimension; kUnset in a row that is not yet complete.
using Row = std::vector<int>;
inline constexpr int kUnset = -1;

// True if a row, complete or not, breaks no rule. Rules ignore dimensions that are not set.
using Allows = std::function<bool(const Row&)>;

struct Cover {
  std::vector<Row> rows;
  size_t pairs = 0;  // Number of pairs that the rules allow; `rows` contain all of them.
};

// sizes[d] is the number of values of dimension d.
Cover cover_pairs(const std::vector<int>& sizes, const Allows& allows, uint64_t seed);

// Calls `row` for each allowed complete row, in lexical order.
void for_each_row(const std::vector<int>& sizes, const Allows& allows,
                  const std::function<void(const Row&)>& row);

// True if the unset values of the row can be filled in within the rules.
bool can_be_completed(const std::vector<int>& sizes, const Allows& allows, Row row);

}  // namespace muster::matrix
