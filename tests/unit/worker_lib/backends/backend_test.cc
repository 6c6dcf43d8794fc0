// Defaults of a backend that overrides only what it must.
#include "worker_lib/backends/backend.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace muster::worker {
namespace {

class PlainBackend final : public GroupBackend {
 public:
  Outcome<> run(const Operation&, Deadline) override { return Done{}; }
  Outcome<int> transfer(const Transfer&, Deadline) override { return 0; }
  Outcome<std::vector<std::shared_ptr<WorkState>>> begin(const std::vector<Transfer>&,
                                                         Deadline) override {
    return std::vector<std::shared_ptr<WorkState>>{};
  }
  void abort(const Failure&) override {}
};

TEST(GroupBackend, ReportsNothingAboutItsCallsByDefault) {
  const PlainBackend backend;
  EXPECT_FALSE(backend.is_asynchronous());
  EXPECT_EQ(backend.refuses({.peer = -1, .tag = 1 << 30}), "");
  EXPECT_EQ(backend.awaited(), std::vector<int>{});
  EXPECT_EQ(backend.last_calls(), std::vector<NumberedCall>{});
  EXPECT_EQ(backend.first_under_way(), std::nullopt);
}

TEST(GroupBackend, RefusesToStartOnAStreamUnlessItIsAsynchronous) {
  PlainBackend backend;
  const auto work = backend.start({.kind = OpKind::barrier}, Deadline::max());
  ASSERT_FALSE(work.has_value());
  EXPECT_EQ(work.error(),
            (Failure{ErrorCode::backend, "this backend cannot start operations on a stream"}));
}

TEST(GroupBackend, AllocatesZeroedAlignedMemoryThatOutlivesIt) {
  constexpr size_t kBytes = 10'000;
  auto backend = std::make_unique<PlainBackend>();
  Outcome<SharedBlock> block = backend->allocate_shared(kBytes, Deadline::max());
  ASSERT_TRUE(block.has_value());
  backend.reset();
  auto* const data = static_cast<char*>(block->data);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)), 0U);
  EXPECT_EQ(std::count(data, data + kBytes, '\0'), 10'000);
  std::memset(data, 1, kBytes);
  const SharedBlock copy = *block;
  block = SharedBlock{};
  EXPECT_EQ(msync(data, kBytes, MS_ASYNC), 0) << "a copy still owns it";
}

TEST(GroupBackend, AllocatesNothingForZeroBytes) {
  PlainBackend backend;
  const Outcome<SharedBlock> block = backend.allocate_shared(0, Deadline::max());
  ASSERT_TRUE(block.has_value());
  EXPECT_EQ(block->data, nullptr);
  EXPECT_EQ(block->owner, nullptr);
}

TEST(GroupBackend, FailsToAllocateMoreThanTheKernelGrants) {
  PlainBackend backend;
  const Outcome<SharedBlock> block = backend.allocate_shared(size_t{1} << 62, Deadline::max());
  ASSERT_FALSE(block.has_value());
  EXPECT_EQ(block.error(),
            (Failure{ErrorCode::system,
                     "mmap of 4611686018427387904 bytes failed: Cannot allocate memory"}));
}

}  // namespace
}  // namespace muster::worker
