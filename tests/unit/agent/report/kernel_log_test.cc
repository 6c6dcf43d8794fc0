// Reads a file that grows as /dev/kmsg does. Its lines come from Linux 6.1 and from NVIDIA's driver
// 580.159.04 with an H200; Xids 63 and 79 are as public reports quote them.
#include "agent/report/kernel_log.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "agent/report/evidence.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFirstNamespace = "pid:[4026531836]";

constexpr const char* kMmuFault =
    "31, pid=673, name=python3, channel 0x0000000b, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 "
    "GPCCLIENT_T1_8 faulted @ 0x0_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE";
constexpr const char* kStopped = "43, pid=723, name=python3, channel 0x0000000c";

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
    return KernelLog(path(), root_);
  }
  void append(const std::string& record) const {
    std::ofstream(path(), std::ios::app) << record << "\n";
  }
  static std::string kill_of(int pid) {
    return "3,1482,5180113,-;Memory cgroup out of memory: Killed process " + std::to_string(pid) +
           " (python3) total-vm:3160412kB, anon-rss:65024kB, file-rss:5888kB, shmem-rss:0kB, UID:0 "
           "pgtables:180kB oom_score_adj:0";
  }

  // Unlike this file, /dev/kmsg gives one record per read.
  void log_xid(KernelLog& log, const std::string& said) const {
    append("4,1490,6180113,-;NVRM: Xid (PCI:0000:00:06): " + said);
    log.xid_of(0);
  }

  std::string root_;
};

TEST_F(KernelLogTest, NamesTheProcessThatTheKernelKilled) {
  KernelLog log = open();
  EXPECT_EQ(log.oom_killed(4711), false);
  append(kill_of(4711));
  EXPECT_EQ(log.oom_killed(4711), true);
  EXPECT_EQ(log.oom_killed(471), false);
  EXPECT_EQ(log.oom_killed(47110), false);
  EXPECT_EQ(log.oom_killed(4711), true);  // Each record is read once and remembered.
}

TEST_F(KernelLogTest, ListsVictimsWithTheirNames) {
  KernelLog log = open();
  append(kill_of(4711));
  EXPECT_EQ(log.oom_victims(), (std::vector<OomVictim>{{4711, "python3"}}));
}

// Records of Linux 6.18; other jobs on the machine run out of memory at the same time.
TEST_F(KernelLogTest, MarksTheVictimsOfItsOwnMemoryCgroup) {
  std::ofstream(root_ + "/proc/self/cgroup") << "4:memory:/slurm/job_7\n0::/\n";
  KernelLog log = open();
  const auto kill_in = [this, &log](const std::string& group, int pid) {
    append(
        "3,1481,5180112,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,"
        "mems_allowed=0,oom_memcg=" +
        group + ",task_memcg=" + group + ",task=python3,pid=" + std::to_string(pid) + ",uid=0");
    log.oom_victims();
    append(kill_of(pid));
    log.oom_victims();
  };
  kill_in("/job_7", 4711);
  kill_in("/slurm/job_7", 4712);
  kill_in("/", 4713);
  append(kill_of(4714));
  EXPECT_EQ(log.oom_victims(), (std::vector<OomVictim>{{4711, "python3", false},
                                                       {4712, "python3", true},
                                                       {4713, "python3", false},
                                                       {4714, "python3", false}}));
}

TEST_F(KernelLogTest, RecognizesAFaultBesideTheStackPointer) {
  KernelLog log = open();
  for (const char* record : {
           "rec[14241]: segfault at 7ffc32bf4f0c ip 0000557dc56b3134 sp 00007ffc32bf4f00 error 6 "
           "in rec[1134,557dc56b3000+1000] likely on CPU 0 (core 0, socket 0)",
           "a [b[14242]: segfault at 7ffc32bf4ef8 ip 0000557dc56b3134 sp 00007ffc32bf4f00 error 6 "
           "in libgx.so[1134,557dc56b3000+1000]",
           "python3[14243]: segfault at 8 ip 0000557dc56b3134 sp 00007ffc32bf4f00 error 4",
           "python3[14244]: segfault at 7f0032bf4f00 ip 557dc56b3134 sp 7ffc32bf4f00 error 4",
           "python3[14245]: segfault at 7ffc32bf4f00 ip 557dc56b3134",
       }) {
    append(std::string("6,1490,6180113,-;") + record);
    log.stack_overflowed(0);
  }
  EXPECT_TRUE(log.stack_overflowed(14241));
  EXPECT_TRUE(log.stack_overflowed(14242));
  for (const pid_t other : {14243, 14244, 14245, 1424})
    EXPECT_FALSE(log.stack_overflowed(other)) << other;
  log.mark();
  EXPECT_FALSE(log.stack_overflowed(14241));
}

TEST_F(KernelLogTest, IgnoresRecordsBeforeAMark) {
  append(kill_of(4711));
  KernelLog log = open();
  EXPECT_EQ(log.oom_killed(4711), false);
  append(kill_of(4712));
  EXPECT_EQ(log.oom_killed(4712), true);
  log.mark();
  EXPECT_EQ(log.oom_killed(4712),
            false);  // In the next attempt, this pid is another process's.
}

TEST_F(KernelLogTest, KnowsNothingInAContainerWithItsOwnPids) {
  KernelLog log = open("pid:[4026532245]");
  append(kill_of(4711));
  EXPECT_EQ(log.oom_killed(4711), std::nullopt);
}

TEST_F(KernelLogTest, KnowsNothingIfItCannotBeOpened) {
  fs::remove(path());
  EXPECT_EQ(open().oom_killed(4711), std::nullopt);
  EXPECT_EQ(open().xid_of(4711), std::nullopt);
}

TEST_F(KernelLogTest, TakesNoVictimFromOtherRecords) {
  KernelLog log = open();
  append("6,1483,5180200,-;Killed process ");
  append("6,1483,5180200,-;Killed process many of them");
  append("6,1484,5180300,-;oom_reaper: reaped process 4711 (python3), now anon-rss:0kB");
  EXPECT_EQ(log.oom_killed(4711), false);
}

TEST_F(KernelLogTest, FindsTheXidThatNamesAProcess) {
  KernelLog log = open();
  EXPECT_EQ(log.xid_of(673), std::nullopt);
  log_xid(log, kMmuFault);
  log_xid(log, kStopped);
  EXPECT_EQ(log.xid_of(673),
            (Xid{31, 673, "0000:00:06",
                 "MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_8 faulted @ 0x0_00000000"}));
  EXPECT_EQ(log.xid_of(723), (Xid{43, 723, "0000:00:06", ""}));
  EXPECT_EQ(log.xid_of(67), std::nullopt);
  log.mark();
  EXPECT_EQ(log.xid_of(673), std::nullopt);
}

TEST_F(KernelLogTest, AssignsAnXidWithoutAPidToAnyProcess) {
  const std::vector<std::string> forms = {
      "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
      "79, GPU has fallen off the bus.",
  };
  for (const std::string& form : forms) {
    KernelLog log = open();
    log_xid(log, "63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping");
    log_xid(log, form);
    EXPECT_EQ(log.xid_of(673), (Xid{79, 0, "0000:00:06", "GPU has fallen off the bus"})) << form;
    log_xid(log, kMmuFault);
    EXPECT_EQ(log.xid_of(673)->number, 31) << form;
  }
}

TEST_F(KernelLogTest, AssignsAHardwareXidOfAnotherProcessToAnyProcess) {
  KernelLog log = open();
  log_xid(log, "119, pid=1710, name=nvidia-smi, Timeout after 6s of waiting for RPC response!");
  EXPECT_EQ(log.xid_of(673), (Xid{119, 1710, "0000:00:06",  //
                                  "Timeout after 6s of waiting for RPC response!"}));
}

// Xid 45 is the clean-up of a GPU after a process, whatever the process died of.
TEST_F(KernelLogTest, IgnoresTheXidOfTheCleanupAfterAProcess) {
  KernelLog log = open();
  log_xid(log, "45, pid=673, name=python3, Ch 00000010");
  EXPECT_EQ(log.xid_of(673), std::nullopt);
}

TEST_F(KernelLogTest, KeepsAFewXidsOfOneLineEach) {
  KernelLog log = open();
  log_xid(log, "13, pid=1, name=a.b, \x1b[31m" + std::string(500, 'x'));
  EXPECT_EQ(log.xid_of(1)->text, "?[31m" + std::string(155, 'x'));
  for (int pid = 2; pid < 100; ++pid)
    log_xid(log, fmt::format("31, pid={0}, name=a\n31, pid={0}, name=a", pid));
  EXPECT_TRUE(log.xid_of(64));
  EXPECT_FALSE(log.xid_of(65));
}

TEST_F(KernelLogTest, IgnoresWhatOnlyLooksLikeAnXid) {
  KernelLog log = open();
  for (const char* record : {"NVRM: Xid (PCI:", "NVRM: Xid (PCI:0000:00:06)", "NVRM: Xid (PCI:): ",
                             "NVRM: Xid (PCI:0000:00:06): many", "NVRM: GPU at PCI:0000:00:06"}) {
    append(std::string("4,1,1,-;") + record);
    EXPECT_EQ(log.xid_of(673), std::nullopt) << record;
  }
  log_xid(log, "79");
  EXPECT_EQ(log.xid_of(673), (Xid{79, 0, "0000:00:06", ""}));
}

TEST_F(KernelLogTest, IsAskedForXidsWhateverTheExitStatus) {
  KernelLog log = open();
  log_xid(log, kMmuFault);
  EvidenceRequest request;
  request.pid = 673;
  request.proc_root = root_ + "/proc";
  request.kernel_log = &log;
  for (const int signal : {0, SIGABRT, SIGKILL}) {
    request.signal = signal;
    const std::optional<Xid> seen = gather_evidence(request).xid;
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->number, 31);
  }
}

// A process below the worker may have been the victim.
TEST_F(KernelLogTest, IsAskedForKillsWhateverTheExitStatus) {
  KernelLog log = open();
  append(kill_of(4711));
  EvidenceRequest request;
  request.proc_root = root_ + "/proc";
  request.kernel_log = &log;
  for (const pid_t pid : {4711, 4712}) {
    request.pid = pid;
    request.signal = pid == 4711 ? SIGKILL : 0;
    const GatheredEvidence evidence = gather_evidence(request);
    EXPECT_EQ(evidence.oom_victim, pid == 4711);
    EXPECT_EQ(evidence.oom_victims, (std::vector<OomVictim>{{4711, "python3"}}));
  }
}

}  // namespace
}  // namespace muster
