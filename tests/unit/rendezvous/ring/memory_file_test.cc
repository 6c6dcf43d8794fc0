#include "rendezvous/ring/memory_file.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace muster::ring {
namespace {

std::string target_of(int fd) {
  std::string target(256, '\0');
  const ssize_t length =
      readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), target.data(), target.size());
  target.resize(length < 0 ? 0 : static_cast<size_t>(length));
  return target;
}

TEST(MemoryFile, HasExactlyTheRequestedSizeAndIsZeroed) {
  const Result<UniqueFd> file = make_memory_file("muster-test", 5'000);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  std::vector<char> bytes(6'000, 'x');
  EXPECT_EQ(pread(file->get(), bytes.data(), bytes.size(), 0), 5'000);
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), '\0'), 5'000);
  EXPECT_EQ(target_of(file->get()), "/memfd:muster-test (deleted)");
  EXPECT_EQ(fcntl(file->get(), F_GETFD), FD_CLOEXEC);
}

TEST(MemoryFile, CanBeWrittenButNeverResized) {
  const Result<UniqueFd> file = make_memory_file("muster-test", 5'000);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(fcntl(file->get(), F_GET_SEALS), kMemoryFileSeals);
  EXPECT_NE(ftruncate(file->get(), 4'999), 0);
  EXPECT_NE(ftruncate(file->get(), 5'001), 0);
  EXPECT_NE(fcntl(file->get(), F_ADD_SEALS, F_SEAL_WRITE), 0)
      << "another process could otherwise seal it";
  EXPECT_EQ(pwrite(file->get(), "y", 1, 4'999), 1);
  EXPECT_LT(pwrite(file->get(), "y", 1, 5'000), 1);
}

TEST(MemoryFile, MayBeEmpty) {
  const Result<UniqueFd> file = make_memory_file("muster-test", 0);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(lseek(file->get(), 0, SEEK_END), 0);
}

TEST(MemoryFile, MayBeAsLargeAsTheFileSizeLimit) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit tight{size_t{1} << 30, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const Result<UniqueFd> largest = make_memory_file("muster-test", size_t{1} << 30);
  const Result<UniqueFd> larger = make_memory_file("muster-test", (size_t{1} << 30) + 1);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(largest.has_value());
  ASSERT_FALSE(larger.has_value());
  EXPECT_EQ(larger.error(),
            (Error{ExitCode::environment,
                   "cannot make 1073741825 bytes of shared memory (memfd): files may have no more "
                   "than 1073741824 bytes; raise the limit (ulimit -f, RLIMIT_FSIZE)"}));
}

TEST(MemoryFile, ReportsTheKernelsErrorIfItIsRefused) {
  const Result<UniqueFd> long_name = make_memory_file(std::string(300, 'x').c_str(), 4'096);
  ASSERT_FALSE(long_name.has_value());
  EXPECT_EQ(long_name.error(),
            (Error{ExitCode::environment,
                   "cannot make 4096 bytes of shared memory (memfd): Invalid argument"}));
}

}  // namespace
}  // namespace muster::ring
