// The elements that the ranks bring along, and what a reduction of them is: computed by one process
// from the seed alone, so that every rank knows what every other one has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "muster/types.h"
#include "tests/matrix/case.h"

namespace muster::matrix {

// A well-mixed number of these two: what all "random" choices of the test are made of.
uint64_t mixed(uint64_t a, uint64_t b);

// Elements first .. first + count - 1 of what `rank` brings along.
void fill(const Case& what, uint64_t seed, int rank, size_t first, size_t count, std::byte* to);

// The reduction over all members of these elements, exact.
// REQUIRES: what.values == Values::exact.
void reduce_exactly(const Case& what, uint64_t seed, size_t first, size_t count, std::byte* to);

// Where the order of additions may show: the value, and how far from it a result may be.
struct Tolerated {
  double value;
  double slack;
};
// REQUIRES: what.values == Values::reals.
std::vector<Tolerated> reduce_roughly(const Case& what, uint64_t seed, size_t first, size_t count);

// The element at `at` as a number.
double as_double(DType dtype, const std::byte* at);

}  // namespace muster::matrix
