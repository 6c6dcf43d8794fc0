// The fake GPU and NCCL (tests/fakes/fake_gpu.h) in tests: how to load them, their state, a stream
// of the program, and a fixture.
#pragma once

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_gpu.h"
#include "tests/unit/worker_lib/backends/backend_ranks.h"
#include "tests/wait_for.h"
#include "worker_lib/backends/nccl/cuda_driver.h"

namespace muster::worker {

// REQUIRES: no earlier use of cuda_driver() or nccl_library(), which keep what they find.
inline void use_fake_gpu() {
  ::setenv("MUSTER_CUDA_LIBRARY", MUSTER_FAKE_GPU, 1);
  ::setenv("MUSTER_NCCL_LIBRARY", MUSTER_FAKE_GPU, 1);
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  ::unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
}

inline void* fake_symbol(const char* name) {
  static void* const library = ::dlopen(MUSTER_FAKE_GPU, RTLD_NOW | RTLD_LOCAL);
  void* const found = library != nullptr ? ::dlsym(library, name) : nullptr;
  if (found == nullptr) std::abort();
  return found;
}

inline fake::FakeGpu& fake_machine() {
  static fake::FakeGpu* const machine =
      reinterpret_cast<fake::FakeGpu* (*)()>(fake_symbol("fake_gpu"))();
  return *machine;
}

// A stream of the program, and the program's work on it.
class TestStream {
 public:
  explicit TestStream(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {
    const Gpu::Current current(*gpu_);
    if (gpu_->cuda().stream_create(&stream_, 0) != kCudaSuccess) std::abort();
  }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  ~TestStream() {
    const Gpu::Current current(*gpu_);
    gpu_->cuda().stream_destroy(stream_);
  }

  CudaStream handle() const { return stream_; }

  void put(std::function<void()> act) {
    using HostFunction = void (*)(void*);
    static const auto launch =
        reinterpret_cast<int (*)(void*, HostFunction, void*)>(fake_symbol("cuLaunchHostFunc"));
    const Gpu::Current current(*gpu_);
    launch(
        stream_,
        [](void* data) {
          const std::unique_ptr<std::function<void()>> owned(
              static_cast<std::function<void()>*>(data));
          (*owned)();
        },
        new std::function<void()>(std::move(act)));
  }

 private:
  std::shared_ptr<Gpu> gpu_;
  CudaStream stream_ = nullptr;
};

// Checks that each test leaves nothing on the machine.
class NcclTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { use_fake_gpu(); }

  void SetUp() override { fake_machine().take_log(); }

  void TearDown() override {
    fake::FakeGpu& machine = fake_machine();
    const auto is_empty = [&] {
      return machine.communicators == 0 && machine.streams == 0 && machine.contexts == 0 &&
             machine.events == 0 && machine.allocations == 0;
    };
    EXPECT_TRUE(test::wait_for(is_empty, "the end of all that was made on the machine"))
        << "left over: " << machine.communicators << " communicators, " << machine.streams
        << " streams, " << machine.contexts << " contexts, " << machine.events << " events, "
        << machine.allocations << " allocations";
    EXPECT_EQ(machine.misuses, 0);
    machine.misuses = machine.aborts = machine.revokes = machine.destroys = machine.queries = 0;
  }

  static std::shared_ptr<Gpu> gpu(int index) {
    auto opened = Gpu::open(**cuda_driver(), index);
    if (!opened) std::abort();
    return *opened;
  }
};

}  // namespace muster::worker
