// Memory of allocate_shared() and of segments under limits of the process, and in children of
// fork().
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/worker_lib/backends/cpu/shm_world.h"
#include "worker_lib/backends/cpu/memory_file.h"
#include "worker_lib/backends/cpu/shm_regions.h"
#include "worker_lib/fork_guard.h"

namespace muster::worker {
namespace {

using shm_test::members_of;
using shm_test::said;
using shm_test::World;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// A forked process. REQUIRES: no other thread runs, which could hold a lock that the child needs.
class Child {
 public:
  explicit Child(const std::function<int()>& body) : pid_(fork()) {
    if (pid_ == 0) _exit(body());
  }
  // Returns its exit code, or 1000 and the signal that killed it.
  int wait() {
    int status = -1;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

int in_child(const std::function<int()>& body) {
  return Child(body).wait();
}

std::string allocation(ShmGroup& group) {
  const Outcome<SharedBlock> block = group.allocate_shared(100, after(seconds{20}));
  return said(block ? Outcome<>() : tl::unexpected(block.error()));
}

// ---- limits

// Allocates as `rank` of two that share `segment`, with only `count` more descriptors.
int allocate_with_descriptors(const std::shared_ptr<Segment>& segment, int rank, int count,
                              const std::string& expected) {
  int last = -1;
  for (int i = 0; i < count; ++i)
    last = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const rlimit tight{static_cast<rlim_t>(last + 1), static_cast<rlim_t>(last + 1)};
  for (int i = 0; i < count; ++i)
    close(last - i);
  if (setrlimit(RLIMIT_NOFILE, &tight) != 0) return 2;
  ShmGroup group(segment, members_of(2, rank));
  return allocation(group) == expected ? 0 : 1;
}

TEST(SharedMemory, ARankWithoutDescriptorsIsNamedOnAllRanks) {
  const std::shared_ptr<Segment> segment = *Segment::create({.ranks = 2});
  const std::string expected =
      "system [10]: rank 10 (host, pid 4001) cannot share memory: cannot make a Unix socket "
      "between "
      "the ranks of this node: Too many open files";
  Child child([&] { return allocate_with_descriptors(segment, 1, 0, expected); });
  ShmGroup group(segment, members_of(2));
  EXPECT_EQ(allocation(group), expected);
  EXPECT_EQ(child.wait(), 0);
}

TEST(SharedMemory, ARankThatHasNoDescriptorForTheMemoryIsNamedOnAllRanks) {
  const std::shared_ptr<Segment> segment = *Segment::create({.ranks = 2});
  const std::string expected =
      "system [10]: rank 10 (host, pid 4001) cannot share memory: cannot take memory from a Unix "
      "socket between the ranks of this node: Too many open files";
  Child child([&] { return allocate_with_descriptors(segment, 1, 1, expected); });
  ShmGroup group(segment, members_of(2));
  EXPECT_EQ(allocation(group), expected);
  EXPECT_EQ(child.wait(), 0);
}

// Two descriptors: the memory and the listening socket, none for an accepted connection.
TEST(SharedMemory, AFirstRankWithoutDescriptorsIsNamedOnAllRanks) {
  const std::shared_ptr<Segment> segment = *Segment::create({.ranks = 2});
  const std::string expected =
      "system [0]: rank 0 (host, pid 4000) cannot share memory: cannot accept on a Unix socket "
      "between the ranks of this node: Too many open files";
  Child child([&] { return allocate_with_descriptors(segment, 0, 2, expected); });
  ShmGroup group(segment, members_of(2, 1));
  EXPECT_EQ(allocation(group), expected);
  EXPECT_EQ(child.wait(), 0);
}

// Limits the address space to what is in use plus `more` bytes.
void limit_addresses(size_t more) {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t bytes = pages * page_bytes() + more;
  const rlimit tight{bytes, bytes};
  if (setrlimit(RLIMIT_AS, &tight) != 0) _exit(2);
}

TEST(SharedMemory, ARankThatCannotMapTheMemoryIsNamedAndTheGroupStaysUsable) {
  constexpr size_t kBytes = size_t{1} << 30;  // Addresses only: they are never touched.
  const std::shared_ptr<Segment> segment = *Segment::create({.ranks = 2});
  const auto allocate = [&](int rank) {
    ShmGroup group(segment, members_of(2, rank));
    const Outcome<SharedBlock> block = group.allocate_shared(kBytes, after(seconds{20}));
    const std::string what = said(block ? Outcome<>() : tl::unexpected(block.error()));
    const std::string barrier = said(group.run({.kind = OpKind::barrier}, after(seconds{20})));
    return what + " / " + barrier;
  };
  Child child([&] {
    limit_addresses(kBytes);
    return allocate(1).starts_with("system []: cannot map") ? 0 : 1;
  });
  EXPECT_EQ(allocate(0),
            "system [10]: rank 10 (host, pid 4001) cannot map the shared memory; see its error "
            "message / done");
  EXPECT_EQ(child.wait(), 0);
}

TEST(SharedMemory, ExceedingTheFileSizeLimitIsAnErrorAndNoSignal) {
  EXPECT_EQ(in_child([] {
              const rlimit tight{100'000, 100'000};
              if (setrlimit(RLIMIT_FSIZE, &tight) != 0) return 2;
              const auto segment = Segment::create({.ranks = 2});
              if (segment || !make_memory_file("muster", 100'000)) return 3;
              return said(tl::unexpected(segment.error()))
                                 .find(
                                     "files may have no more than 100000 bytes; raise the limit "
                                     "(ulimit -f, RLIMIT_FSIZE)") == std::string::npos
                         ? 1
                         : 0;
            }),
            0);
}

// ---- fork

bool is_mapped(void* page) {
  return msync(page, page_bytes(), MS_ASYNC) == 0;
}

TEST(SharedMemory, AForkedChildReleasesNothing) {
  arm_fork_guard();
  World world(2);
  std::optional<SharedBlock> blocks[2];
  const auto allocate = [&](int rank, ShmGroup& group) {
    const Outcome<SharedBlock> block = group.allocate_shared(100, after(seconds{20}));
    ASSERT_TRUE(block.has_value());
    blocks[rank] = *block;
  };
  world.each(allocate);
  void* const held = blocks[0]->data;
  EXPECT_EQ(in_child([&] {
              for (auto& block : blocks)
                block.reset();
              return 0;
            }),
            0);
  // The other rank releases its block; the next allocation unmaps blocks that are not held.
  blocks[1].reset();
  const std::optional<SharedBlock> kept = blocks[0];
  world.each(allocate);
  ASSERT_TRUE(is_mapped(held));
  std::memset(held, 1, 100);
}

}  // namespace
}  // namespace muster::worker
