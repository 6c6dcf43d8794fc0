#include "agent/process/worker_hooks.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr WorkerHooks kBoth{.python = true, .nccl = true};

class WorkerHooksTest : public testing::Test {
 protected:
  WorkerHooksTest() {
    fs::remove_all(parent_);
    fs::create_directory(parent_);
  }
  ~WorkerHooksTest() override { fs::remove_all(parent_); }

  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_))
      names.insert(entry.path().filename());
    return names;
  }

  const std::string parent_ = testing::TempDir() + "worker_hooks_test." + std::to_string(getpid());
  const std::string folder_ = parent_ + "/7.python";
};

TEST_F(WorkerHooksTest, WritesAPrivateFolderAndRemovesItWithItsContent) {
  if (built_in_hooks() != kBoth)
    GTEST_SKIP() << "this build lacks a hook: no python3-dev, or a sanitizer";
  // Left by a job that was killed and had the same number.
  fs::create_directories(folder_ + "/__pycache__");
  ASSERT_TRUE(write_hooks(folder_, kBoth));
  EXPECT_EQ(files(), (std::set<std::string>{"_muster_departure.py", "_muster_recorder.py",
                                            "_muster_ring.abi3.so", "libnccl-profiler-muster.so",
                                            "sitecustomize.py"}));
  EXPECT_TRUE(fs::exists(nccl_plugin_in(folder_)));
  EXPECT_EQ(fs::status(folder_).permissions(), fs::perms::owner_all);
  fs::create_directories(folder_ + "/__pycache__");
  std::ofstream(folder_ + "/__pycache__/sitecustomize.cpython-311.pyc") << "code";
  remove_hooks(folder_);
  EXPECT_TRUE(fs::is_empty(parent_));
}

TEST_F(WorkerHooksTest, WritesOnlyTheHooksThatAreAskedFor) {
  ASSERT_TRUE(write_hooks(folder_, {.nccl = built_in_hooks().nccl}));
  EXPECT_EQ(files().size(), built_in_hooks().nccl ? 1U : 0U);
}

TEST_F(WorkerHooksTest, SaysWhyTheFolderCannotBeWritten) {
  const Result<void> written = write_hooks(parent_ + "/missing/7.python", kBoth);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().message, "cannot write " + parent_ +
                                         "/missing/7.python: No such file or directory; set "
                                         "MUSTER_RUN_DIR to another folder");
}

}  // namespace
}  // namespace muster
