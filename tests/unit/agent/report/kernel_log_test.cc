// Against a file that grows as /dev/kmsg does. Its lines are what Linux 6.1 printed.
#include "agent/report/kernel_log.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <stdlib.h>

#include "agent/report/evidence.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFirstNamespace = "pid:[4026531836]";

class KernelLogTest : public testing::Test {
 protected:
  KernelLogTest() {
    std::string name = (fs::temp_directory_path() / "muster_kernel_log_XXXXXX").string();
    root_ = ::mkdtemp(name.data());
    fs::create_directories(root_ + "/proc/self/ns");
    std::ofstream{path()};
  }
  ~KernelLogTest() override { fs::remove_all(root_); }

  std::string path() const { return root_ + "/kmsg"; }
  KernelLog open(const char* pid_namespace = kFirstNamespace) const {
    fs::remove(root_ + "/proc/self/ns/pid");
    fs::create_symlink(pid_namespace, root_ + "/proc/self/ns/pid");
    return KernelLog(path(), root_ + "/proc");
  }
  void append(const std::string& record) const {
    std::ofstream(path(), std::ios::app) << record << "\n";
  }
  static std::string kill_of(int pid) {
    return "3,1482,5180113,-;Memory cgroup out of memory: Killed process " + std::to_string(pid) +
           " (python3) total-vm:3160412kB, anon-rss:65024kB, file-rss:5888kB, shmem-rss:0kB, UID:0 "
           "pgtables:180kB oom_score_adj:0";
  }

  std::string root_;
};

TEST_F(KernelLogTest, NamesWhomTheKernelKilled) {
  KernelLog log = open();
  EXPECT_EQ(log.oom_killed(4711), false);
  append(kill_of(4711));
  EXPECT_EQ(log.oom_killed(4711), true);
  EXPECT_EQ(log.oom_killed(471), false);
  EXPECT_EQ(log.oom_killed(47110), false);
  EXPECT_EQ(log.oom_killed(4711), true);  // A record is read once and known from then on.
}

TEST_F(KernelLogTest, TheRecordsBeforeAMarkDoNotCount) {
  append(kill_of(4711));
  KernelLog log = open();
  EXPECT_EQ(log.oom_killed(4711), false);
  append(kill_of(4712));
  EXPECT_EQ(log.oom_killed(4712), true);
  log.mark();
  EXPECT_EQ(log.oom_killed(4712),
            false);  // The same number in the next attempt is another process.
}

TEST_F(KernelLogTest, TellsNothingInAContainerWhereProcessesHaveOtherNumbers) {
  KernelLog log = open("pid:[4026532245]");
  append(kill_of(4711));
  EXPECT_EQ(log.oom_killed(4711), std::nullopt);
}

TEST_F(KernelLogTest, TellsNothingWhereItIsClosed) {
  fs::remove(path());
  EXPECT_EQ(open().oom_killed(4711), std::nullopt);
}

TEST_F(KernelLogTest, OtherRecordsNameNobody) {
  KernelLog log = open();
  append("6,1483,5180200,-;Killed process ");
  append("6,1483,5180200,-;Killed process many of them");
  append("6,1484,5180300,-;oom_reaper: reaped process 4711 (python3), now anon-rss:0kB");
  EXPECT_EQ(log.oom_killed(4711), false);
}

TEST_F(KernelLogTest, IsAskedAboutASigkillOnly) {
  KernelLog log = open();
  append(kill_of(4711));
  EvidenceRequest request;
  request.pid = 4711;
  request.proc_root = root_ + "/proc";
  request.kernel_log = &log;
  for (const int other : {0, SIGTERM, SIGSEGV}) {
    request.signal = other;
    EXPECT_EQ(gather_evidence(request).oom_victim, std::nullopt);
  }
  request.signal = SIGKILL;
  EXPECT_EQ(gather_evidence(request).oom_victim, true);
}

}  // namespace
}  // namespace muster
