#include "rendezvous/base/process_limit.h"

#include <string>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/fakes/temp_tree.h"

namespace muster {
namespace {

class ProcessLimitTest : public testing::Test {
 protected:
  ProcessLimitTest() {
    tree.write("proc/self/uid_map", "         0          0 4294967295");
    tree.write("proc/self/cgroup", "8:pids:/box/job\n0::/");
  }

  void group(const std::string& path, const std::string& max, int current, int refusals) const {
    tree.write(path + "/pids.max", max);
    tree.write(path + "/pids.current", std::to_string(current));
    tree.write(path + "/pids.events", "max " + std::to_string(refusals));
  }

  std::string where(const std::string& path) const { return (tree.root() / path).string(); }

  TempTree tree;
};

TEST_F(ProcessLimitTest, IsPidsMaxOfTheCgroupThatIsFull) {
  const std::string box = "sys/fs/cgroup/pids/box";
  group(box, "14", 14, 0);
  group(box + "/job", "max", 9, 0);
  EXPECT_EQ(ProcessLimits(tree.root()).met(RLIM_INFINITY), "pids.max of " + where(box) + " is 14");
  group(box, "14", 13, 0);
  EXPECT_EQ(ProcessLimits(tree.root()).met(RLIM_INFINITY), "");
}

// The group is no longer full once the refused worker and its threads are dead.
TEST_F(ProcessLimitTest, IsPidsMaxOfTheCgroupThatHasRefusedSinceTheSnapshot) {
  const std::string job = "sys/fs/cgroup/pids/box/job";
  group(job, "14", 3, 7);
  group("sys/fs/cgroup/pids/box", "100", 30, 0);
  ProcessLimits limits(tree.root());
  EXPECT_EQ(limits.met(RLIM_INFINITY), "");
  group(job, "14", 3, 8);
  EXPECT_EQ(limits.met(RLIM_INFINITY), "pids.max of " + where(job) + " is 14");
  limits.snapshot();
  EXPECT_EQ(limits.met(RLIM_INFINITY), "");
}

TEST_F(ProcessLimitTest, IsReadFromCgroupVersionTwo) {
  tree.write("proc/self/cgroup", "0::/job");
  group("sys/fs/cgroup/job", "20", 20, 0);
  EXPECT_EQ(ProcessLimits(tree.root()).met(RLIM_INFINITY),
            "pids.max of " + where("sys/fs/cgroup/job") + " is 20");
}

TEST_F(ProcessLimitTest, IsTheUsersLimitIfNoCgroupIsFull) {
  const std::string users = "ulimit -u (RLIMIT_NPROC) is 14 for all processes and threads of uid " +
                            std::to_string(getuid());
  EXPECT_EQ(ProcessLimits(tree.root()).met(14), getuid() == 0 ? "" : users);
  tree.write("proc/self/uid_map", "         0       4001          1");
  EXPECT_EQ(ProcessLimits(tree.root()).met(14), users);
}

}  // namespace
}  // namespace muster
