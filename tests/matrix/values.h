// The input elements of all ranks and the results of reductions, computed by one process from the
// seed alone, so that every rank knows the input of every other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "muster/types.h"
#include "tests/matrix/case.h"

namespace muster::matrix {

// Hashes two numbers into one; all "random" choices of the test come from it.
uint64_t mixed(uint64_t a, uint64_t b);

// Writes elements first .. first + count - 1 of the input of `rank`.
void fill(const Case& what, uint64_t seed, int rank, size_t first, size_t count, std::byte* to);

// Writes the exact reduction of these elements over all members.
// REQUIRES: what.values == Values::exact.
void reduce_exactly(const Case& what, uint64_t seed, size_t first, size_t count, std::byte* to);

// A value that may depend on the order of additions, and how far a result may be from it.
struct Tolerated {
  double value;
  double slack;
};
// REQUIRES: what.values == Values::reals.
std::vector<Tolerated> reduce_roughly(const Case& what, uint64_t seed, size_t first, size_t count);

double as_double(DType dtype, const std::byte* at);

}  // namespace muster::matrix
