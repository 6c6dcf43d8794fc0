// One rank's memory of a case as a single block, before and after the operation: its buffers with
// guards around them. All that the operation must not change (its input, the guards, a buffer used
// on the root only) is in the block, so comparing the whole block finds every stray write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/matrix/case.h"
#include "tests/matrix/values.h"

namespace muster::matrix {

// Place of a buffer in the block.
struct Piece {
  size_t at = 0;      // Bytes.
  size_t count = 0;   // Elements.
  bool given = true;  // False: the operation gets an empty buffer.
};

struct Layout {
  DType dtype = DType::uint8;
  Piece in;
  Piece out;
  std::vector<size_t> send_counts;  // Counts of v operations; empty if this rank need not know.
  std::vector<size_t> recv_counts;
  std::vector<std::byte> before;
  std::vector<std::byte> after;
  std::vector<Tolerated> rough;  // If not empty, replaces `after` for `out`.

  ConstBuffer in_buffer(std::byte* block, Device device) const;
  Buffer out_buffer(std::byte* block, Device device) const;

  // Describes the first fault of the block: its place, the actual and the expected value.
  std::optional<std::string> fault_of(const std::vector<std::byte>& block) const;
};

Layout layout_of(const Case& what, uint64_t seed, int me);

// Bytes of the largest block of any member, for allocate_shared().
size_t block_bytes_max(const Case& what, uint64_t seed);

// Length of a block, at most what.size, in the v operations and all_gather_bytes.
size_t count_of(const Case& what, uint64_t seed, int from, int to);

}  // namespace muster::matrix
