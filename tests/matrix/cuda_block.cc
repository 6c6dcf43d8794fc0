// Blocks in GPU memory.
#include "tests/matrix/block.h"
#include "tests/matrix/test_cuda.h"

namespace muster::matrix {
namespace {

class CudaBlock : public Block {
 public:
  CudaBlock(int device, size_t bytes, size_t shift) : device_(device), bytes_(bytes) {
    CudaDriver::instance().use(device);
    memory_ = CudaDriver::instance().allocate(bytes + shift);
    data_ = memory_ + shift;
  }
  ~CudaBlock() override { CudaDriver::instance().free(memory_); }

  std::byte* data() override { return data_; }
  Device device() const override { return Device::cuda(device_); }
  void write(const std::vector<std::byte>& bytes) override {
    CudaDriver::instance().write(data_, bytes);
  }
  std::vector<std::byte> read() override {
    std::vector<std::byte> bytes(bytes_);
    CudaDriver::instance().read(bytes, data_);
    return bytes;
  }

 private:
  int device_;
  size_t bytes_;
  std::byte* memory_ = nullptr;
  std::byte* data_ = nullptr;
};

}  // namespace

std::unique_ptr<Block> make_cuda_block(int device, size_t bytes, size_t shift) {
  return std::make_unique<CudaBlock>(device, bytes, shift);
}

}  // namespace muster::matrix
