// The same operations on GPU memory: each rank averages numbers that lie on its own GPU.
//
//   muster --nproc-per-node gpu cuda
//
// Building it does not need CUDA: the driver's library is opened at run time. Without a GPU or NCCL
// it says what is missing and exits successfully. In a program that uses CUDA itself, pass its
// pointers and streams as they are.
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <muster/distributed.h>

// The parts of CUDA's driver interface (cuda.h) used here; all functions return 0 on success.
class Gpu {
 public:
  explicit Gpu(int index) {
    check(load<int(unsigned)>("cuInit")(0), "cuInit");
    int device = 0;
    check(load<int(int*, int)>("cuDeviceGet")(&device, index), "cuDeviceGet");
    void* context = nullptr;  // The one that the CUDA runtime and NCCL also use.
    check(load<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, device), "context");
    check(load<int(void*)>("cuCtxSetCurrent")(context), "cuCtxSetCurrent");
  }

  void* allocate(size_t bytes) {
    uintptr_t address = 0;
    check(load<int(uintptr_t*, size_t)>("cuMemAlloc_v2")(&address, bytes), "cuMemAlloc");
    return reinterpret_cast<void*>(address);
  }
  void release(void* memory) {
    check(load<int(uintptr_t)>("cuMemFree_v2")(reinterpret_cast<uintptr_t>(memory)), "cuMemFree");
  }
  void copy_to(void* gpu, const void* host, size_t bytes) {
    const auto to = reinterpret_cast<uintptr_t>(gpu);
    check(load<int(uintptr_t, const void*, size_t)>("cuMemcpyHtoD_v2")(to, host, bytes), "copy");
  }
  void copy_from(void* host, const void* gpu, size_t bytes) {
    const auto from = reinterpret_cast<uintptr_t>(gpu);
    check(load<int(void*, uintptr_t, size_t)>("cuMemcpyDtoH_v2")(host, from, bytes), "copy");
  }

 private:
  template <typename Function>
  Function* load(const char* name) {
    void* found = driver_ == nullptr ? nullptr : dlsym(driver_, name);
    if (found == nullptr) throw std::runtime_error(std::string("libcuda.so.1 has no ") + name);
    return reinterpret_cast<Function*>(found);
  }
  static void check(int result, const char* what) {
    if (result != 0) throw std::runtime_error(what + (": CUDA error " + std::to_string(result)));
  }

  void* driver_ = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
};

static void average_on_gpu() {
  Gpu gpu(muster::device().index);
  const std::vector<float> numbers(1000, static_cast<float>(muster::rank()));
  const size_t bytes = numbers.size() * sizeof(float);
  void* memory = gpu.allocate(bytes);
  gpu.copy_to(memory, numbers.data(), bytes);

  // A view of any memory: address, count, type and device. The operation runs after what is already
  // on the default stream, and before what is put there later.
  const muster::Buffer on_gpu(memory, numbers.size(), muster::DType::float32, muster::device());
  muster::world().all_reduce(on_gpu, muster::ReduceOp::average);

  std::vector<float> result(numbers.size());
  gpu.copy_from(result.data(), memory, bytes);
  gpu.release(memory);
  std::printf("rank %d: GPU %d holds the average %g\n", muster::rank(), muster::device().index,
              static_cast<double>(result.back()));
}

int main() try {
  muster::init_process_group();
  std::string why;
  if (muster::is_nccl_available(&why)) {
    average_on_gpu();
  } else if (muster::rank() == 0) {
    std::printf("nothing to do on a GPU here: %s\n", why.c_str());
  }
  muster::destroy_process_group();
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
