// What one rank brings to a case and what must be there afterwards, as one block of memory: its
// buffers with guards around them, before and after. Whatever the operation should leave alone (its
// input, the guards, a buffer that counts on the root only) is in the block, so comparing the whole
// block finds every stray write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/matrix/case.h"
#include "tests/matrix/values.h"

namespace muster::matrix {

// Where a buffer lies in the block.
struct Piece {
  size_t at = 0;      // Bytes.
  size_t count = 0;   // Elements.
  bool given = true;  // Else the operation gets an empty buffer.
};

struct Layout {
  DType dtype = DType::uint8;
  Piece in;
  Piece out;
  std::vector<size_t> send_counts;  // Of v operations; empty where this rank need not know.
  std::vector<size_t> recv_counts;
  std::vector<std::byte> before;
  std::vector<std::byte> after;
  std::vector<Tolerated> rough;  // Of `out`, instead of `after` there; else empty.

  ConstBuffer in_buffer(std::byte* block, Device device) const;
  Buffer out_buffer(std::byte* block, Device device) const;

  // Nothing, or what is wrong with the block: where, what is there and what should be.
  std::optional<std::string> fault_of(const std::vector<std::byte>& block) const;
};

// The layout for the member `me`.
Layout layout_of(const Case& what, uint64_t seed, int me);

// The bytes of the largest block of any member: what allocate_shared() is to be asked for.
size_t block_bytes_max(const Case& what, uint64_t seed);

// Block lengths of the v operations and of all_gather_bytes: between nothing and what.size.
size_t count_of(const Case& what, uint64_t seed, int from, int to);

}  // namespace muster::matrix
