#include "tests/matrix/block.h"

#include <cstring>

namespace muster::matrix {
namespace {

constexpr size_t kCacheLine = 64;

class HeapBlock : public Block {
 public:
  HeapBlock(size_t bytes, size_t shift) : memory_(bytes + shift + kCacheLine), bytes_(bytes) {
    void* start = memory_.data();
    size_t room = memory_.size();
    data_ = static_cast<std::byte*>(std::align(kCacheLine, bytes + shift, start, room)) + shift;
  }

  std::byte* data() override { return data_; }
  void write(const std::vector<std::byte>& bytes) override {
    std::memcpy(data_, bytes.data(), bytes.size());
  }
  std::vector<std::byte> read() override { return {data_, data_ + bytes_}; }

 private:
  std::vector<std::byte> memory_;
  std::byte* data_;
  size_t bytes_;
};

class SharedBlock : public Block {
 public:
  SharedBlock(ProcessGroup group, size_t bytes, size_t bytes_max)
      : memory_(group.allocate_shared(bytes_max)), bytes_(bytes) {}

  std::byte* data() override { return static_cast<std::byte*>(memory_.data()); }
  void write(const std::vector<std::byte>& bytes) override {
    std::memcpy(data(), bytes.data(), bytes.size());
  }
  std::vector<std::byte> read() override { return {data(), data() + bytes_}; }

 private:
  SharedMemory memory_;
  size_t bytes_;
};

}  // namespace

std::unique_ptr<Block> make_heap_block(size_t bytes, size_t shift) {
  return std::make_unique<HeapBlock>(bytes, shift);
}

std::unique_ptr<Block> make_shared_block(ProcessGroup group, size_t bytes, size_t bytes_max) {
  return std::make_unique<SharedBlock>(std::move(group), bytes, bytes_max);
}

}  // namespace muster::matrix
