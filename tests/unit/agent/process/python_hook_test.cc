#include "agent/process/python_hook.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include <gtest/gtest.h>

namespace muster {
namespace {

namespace fs = std::filesystem;

class PythonHook : public testing::Test {
 protected:
  PythonHook() {
    fs::remove_all(parent_);
    fs::create_directory(parent_);
  }
  ~PythonHook() override { fs::remove_all(parent_); }

  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_))
      names.insert(entry.path().filename());
    return names;
  }

  const std::string parent_ = testing::TempDir() + "python_hook_test";
  const std::string folder_ = parent_ + "/7.python";
};

TEST_F(PythonHook, IsAFolderForTheUserAloneThatGoesWithAllThatIsInIt) {
  if (!has_python_hook()) GTEST_SKIP() << "this build has none: no python3-dev, or a sanitizer";
  // Of a job that was killed, and had this number.
  fs::create_directories(folder_ + "/__pycache__");
  ASSERT_TRUE(write_python_hook(folder_));
  EXPECT_EQ(files(), (std::set<std::string>{"_muster_recorder.py", "_muster_ring.abi3.so",
                                            "sitecustomize.py"}));
  EXPECT_EQ(fs::status(folder_).permissions(), fs::perms::owner_all);
  fs::create_directories(folder_ + "/__pycache__");
  std::ofstream(folder_ + "/__pycache__/sitecustomize.cpython-311.pyc") << "code";
  remove_python_hook(folder_);
  EXPECT_TRUE(fs::is_empty(parent_));
}

TEST_F(PythonHook, SaysWhyItCannotBeWritten) {
  const Result<void> written = write_python_hook(parent_ + "/missing/7.python");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().message, "cannot write " + parent_ +
                                         "/missing/7.python: No such file or directory; set "
                                         "MUSTER_RUN_DIR to another folder");
}

}  // namespace
}  // namespace muster
