// The functions of the CUDA driver that tests and benchmarks use, opened at run time, so that they
// build without CUDA. Names and numbers are those of the CUDA driver API reference. Throws
// std::runtime_error if the driver is missing or refuses.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <dlfcn.h>

namespace muster::matrix {

using CudaAddress = unsigned long long;

class CudaDriver {
 public:
  static CudaDriver& instance() {
    static CudaDriver driver;
    return driver;
  }

  int devices() {
    int count = 0;
    check("cuDeviceGetCount", count_(&count));
    return count;
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
  void* new_stream() {
    void* stream = nullptr;
    check("cuStreamCreate", create_stream_(&stream, 0));
    return stream;
  }
  void wait_for(void* stream) { check("cuStreamSynchronize", synchronize_stream_(stream)); }

  // Any other function of the driver, by its exported name.
  template <typename... Args>
  void call(const char* name, Args... args) {
    int (*function)(Args...) = nullptr;
    find(function, name);
    check(name, function(args...));
  }

 private:
  CudaDriver() {
    const char* const named = std::getenv("MUSTER_CUDA_LIBRARY");  // As the library itself does.
    library_ = dlopen(named != nullptr ? named : "libcuda.so.1", RTLD_NOW);
    if (library_ == nullptr) throw std::runtime_error(dlerror());
    int (*init)(unsigned) = nullptr;
    find(init, "cuInit");
    find(count_, "cuDeviceGetCount");
    find(retain_, "cuDevicePrimaryCtxRetain");
    find(set_current_, "cuCtxSetCurrent");
    find(synchronize_, "cuCtxSynchronize");
    find(allocate_, "cuMemAlloc_v2");
    find(free_, "cuMemFree_v2");
    find(create_stream_, "cuStreamCreate");
    find(synchronize_stream_, "cuStreamSynchronize");
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
  int (*count_)(int*) = nullptr;
  int (*retain_)(void**, int) = nullptr;
  int (*set_current_)(void*) = nullptr;
  int (*synchronize_)() = nullptr;
  int (*create_stream_)(void**, unsigned) = nullptr;
  int (*synchronize_stream_)(void*) = nullptr;
  int (*allocate_)(CudaAddress*, size_t) = nullptr;
  int (*free_)(CudaAddress) = nullptr;
  int (*write_)(CudaAddress, const void*, size_t) = nullptr;
  int (*read_)(void*, CudaAddress, size_t) = nullptr;
};

// NCCL refuses two ranks of a host on one GPU. If there are more ranks than GPUs, gives each rank a
// host id of its own. REQUIRES: the ranks have not met yet.
inline void let_ranks_share_gpus() {
  const char* const rank = std::getenv("RANK");
  const char* const ranks = std::getenv("LOCAL_WORLD_SIZE");
  if (rank == nullptr || ranks == nullptr) return;
  if (std::atoi(ranks) <= CudaDriver::instance().devices()) return;
  setenv("NCCL_HOSTID", (std::string("rank") + rank).c_str(), 0);
}

}  // namespace muster::matrix
