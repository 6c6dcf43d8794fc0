#include "worker_lib/backends/cpu/memory_file.h"

#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace muster::worker {
namespace {

TEST(WorkerMemoryFile, SizesAreRoundedUpToPages) {
  const size_t page = page_bytes();
  EXPECT_EQ(page, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(round_to_pages(0), 0U);
  EXPECT_EQ(round_to_pages(1), page);
  EXPECT_EQ(round_to_pages(page - 1), page);
  EXPECT_EQ(round_to_pages(page), page);
  EXPECT_EQ(round_to_pages(page + 1), 2 * page);
  EXPECT_EQ(round_to_pages(page * 1'000'000'000), page * 1'000'000'000);
}

TEST(WorkerMemoryFile, ReportsASystemFailureIfTheKernelRefuses) {
  const Outcome<UniqueFd> long_name = make_memory_file(std::string(300, 'x').c_str(), 4'096);
  ASSERT_FALSE(long_name.has_value());
  EXPECT_EQ(long_name.error(),
            (Failure{ErrorCode::system,
                     "cannot make 4096 bytes of shared memory (memfd): Invalid argument"}));
}

}  // namespace
}  // namespace muster::worker
