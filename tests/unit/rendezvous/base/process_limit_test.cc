#include "rendezvous/base/process_limit.h"

#include <algorithm>
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

  // What holds where no cgroup is in the way: this user may have a limit.
  std::string otherwise() const {
    rlimit limit{};
    getrlimit(RLIMIT_NPROC, &limit);
    if (getuid() == 0 || limit.rlim_cur == RLIM_INFINITY) return {};
    return "ulimit -u (RLIMIT_NPROC) is " + std::to_string(limit.rlim_cur) +
           " for all processes and threads of uid " + std::to_string(getuid());
  }

  TempTree tree;
};

TEST_F(ProcessLimitTest, IsPidsMaxOfTheCgroupThatIsFull) {
  const std::string box = "sys/fs/cgroup/pids/box";
  group(box, "14", 14, 0);
  group(box + "/job", "max", 9, 0);
  EXPECT_EQ(ProcessLimits(tree.root()).met(), "pids.max of " + where(box) + " is 14");
  group(box, "14", 13, 0);
  EXPECT_EQ(ProcessLimits(tree.root()).met(), otherwise());
}

// The worker is dead by then, and its threads with it.
TEST_F(ProcessLimitTest, IsPidsMaxOfTheCgroupThatHasRefusedSinceTheSnapshot) {
  const std::string job = "sys/fs/cgroup/pids/box/job";
  group(job, "14", 3, 7);
  group("sys/fs/cgroup/pids/box", "100", 30, 0);
  ProcessLimits limits(tree.root());
  EXPECT_EQ(limits.met(), otherwise());
  group(job, "14", 3, 8);
  EXPECT_EQ(limits.met(), "pids.max of " + where(job) + " is 14");
  limits.snapshot();
  EXPECT_EQ(limits.met(), otherwise());
}

TEST_F(ProcessLimitTest, IsReadOfVersionTwoAsWell) {
  tree.write("proc/self/cgroup", "0::/job");
  group("sys/fs/cgroup/job", "20", 20, 0);
  EXPECT_EQ(ProcessLimits(tree.root()).met(),
            "pids.max of " + where("sys/fs/cgroup/job") + " is 20");
}

TEST_F(ProcessLimitTest, IsTheUsersLimitForTheRootOfAUserNamespace) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NPROC, &before), 0);
  rlimit low = before;
  low.rlim_cur = std::min<rlim_t>(before.rlim_max, 4000);
  ASSERT_EQ(setrlimit(RLIMIT_NPROC, &low), 0);
  tree.write("proc/self/uid_map", "         0       4001          1");
  EXPECT_EQ(ProcessLimits(tree.root()).met(),
            "ulimit -u (RLIMIT_NPROC) is " + std::to_string(low.rlim_cur) +
                " for all processes and threads of uid " + std::to_string(getuid()));
  ASSERT_EQ(setrlimit(RLIMIT_NPROC, &before), 0);
}

}  // namespace
}  // namespace muster
