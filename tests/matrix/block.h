// The memory of a case: a block on the heap, in the segment that the node's ranks share, or on the
// GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "muster/process_group.h"
#include "tests/matrix/case.h"

namespace muster::matrix {

class Block {
 public:
  virtual ~Block() = default;
  virtual std::byte* data() = 0;
  virtual Device device() const { return Device::cpu(); }
  virtual void write(const std::vector<std::byte>& bytes) = 0;
  // Waits for the pending work of the GPU first.
  virtual std::vector<std::byte> read() = 0;
};

// Heap memory that starts `shift` bytes after a cache-line boundary.
std::unique_ptr<Block> make_heap_block(size_t bytes, size_t shift);
// Collective over the group.
std::unique_ptr<Block> make_shared_block(ProcessGroup group, size_t bytes, size_t bytes_max);
// Throws std::runtime_error if the driver refuses.
std::unique_ptr<Block> make_cuda_block(int device, size_t bytes, size_t shift);

}  // namespace muster::matrix
