// GPU memory by the driver alone, opened at run time: the matrix needs no CUDA to be built. The
// names and numbers are those of the CUDA driver API's reference.
#include <cstdint>
#include <stdexcept>
#include <string>

#include <dlfcn.h>

#include "tests/matrix/block.h"

namespace muster::matrix {
namespace {

using CudaAddress = unsigned long long;

class CudaDriver {
 public:
  static CudaDriver& instance() {
    static CudaDriver driver;
    return driver;
  }

  void use(int device) {
    void* context = nullptr;
    check("cuDevicePrimaryCtxRetain", retain_(&context, device));
    check("cuCtxSetCurrent", set_current_(context));
  }
  std::byte* allocate(size_t bytes) {
    CudaAddress address = 0;
    check("cuMemAlloc", allocate_(&address, bytes));
    return reinterpret_cast<std::byte*>(address);
  }
  void free(std::byte* at) { free_(reinterpret_cast<CudaAddress>(at)); }
  void write(std::byte* to, const std::vector<std::byte>& from) {
    check("cuMemcpyHtoD", write_(reinterpret_cast<CudaAddress>(to), from.data(), from.size()));
    check("cuCtxSynchronize", synchronize_());
  }
  void read(std::vector<std::byte>& to, const std::byte* from) {
    check("cuCtxSynchronize", synchronize_());
    check("cuMemcpyDtoH", read_(to.data(), reinterpret_cast<CudaAddress>(from), to.size()));
  }

 private:
  CudaDriver() {
    library_ = dlopen("libcuda.so.1", RTLD_NOW);
    if (library_ == nullptr) throw std::runtime_error(dlerror());
    int (*init)(unsigned) = nullptr;
    find(init, "cuInit");
    find(retain_, "cuDevicePrimaryCtxRetain");
    find(set_current_, "cuCtxSetCurrent");
    find(synchronize_, "cuCtxSynchronize");
    find(allocate_, "cuMemAlloc_v2");
    find(free_, "cuMemFree_v2");
    find(write_, "cuMemcpyHtoD_v2");
    find(read_, "cuMemcpyDtoH_v2");
    check("cuInit", init(0));
  }

  template <typename Function>
  void find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function == nullptr) throw std::runtime_error(std::string("libcuda has no ") + name);
  }

  static void check(const char* what, int result) {
    if (result != 0) {
      throw std::runtime_error(std::string(what) + " failed with " + std::to_string(result));
    }
  }

  void* library_ = nullptr;
  int (*retain_)(void**, int) = nullptr;
  int (*set_current_)(void*) = nullptr;
  int (*synchronize_)() = nullptr;
  int (*allocate_)(CudaAddress*, size_t) = nullptr;
  int (*free_)(CudaAddress) = nullptr;
  int (*write_)(CudaAddress, const void*, size_t) = nullptr;
  int (*read_)(void*, CudaAddress, size_t) = nullptr;
};

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
