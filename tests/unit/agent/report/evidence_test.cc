// Reads fake trees of /proc and /sys/fs/cgroup, and once the real ones.
#include "agent/report/evidence.h"

#include <array>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster {
namespace {

namespace fs = std::filesystem;

class EvidenceTest : public testing::Test {
 protected:
  EvidenceTest() {
    std::string name = (fs::temp_directory_path() / "muster_evidence_XXXXXX").string();
    root_ = ::mkdtemp(name.data());
  }
  ~EvidenceTest() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& content) const {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << content;
  }
  std::string proc() const { return root_ + "/proc"; }

  HostEvidence oom_evidence(const OomWatch& watch) const {
    HostEvidence evidence;
    watch.fill(evidence);
    return evidence;
  }

  EvidenceRequest core_request() const {
    EvidenceRequest request;
    request.pid = 4711;
    request.signal = 11;
    request.core_dumped = true;
    request.comm = "python3";
    request.cwd = root_ + "/work";
    request.proc_root = proc();
    return request;
  }

  static ProcessEntry entry_of_77() {
    ProcessEntry entry;
    entry.pid = 77;
    entry.name = "a (b) c";
    entry.state = 'D';
    return entry;
  }

  std::string root_;
};

TEST_F(EvidenceTest, CountsKillsOfACgroupOfVersion2SinceTheSnapshot) {
  write("/proc/self/cgroup", "0::/job\n");
  write("/sys/fs/cgroup/job/memory.events", "low 0\noom 4\noom_kill 3\noom_group_kill 9\n");
  write("/sys/fs/cgroup/job/memory.max", "1073741824\n");
  OomWatch watch(root_);
  EXPECT_EQ(oom_evidence(watch).oom_kills, 0);
  EXPECT_EQ(oom_evidence(watch).memory_limit_bytes, 1073741824);
  write("/sys/fs/cgroup/job/memory.events", "low 0\noom 6\noom_kill 5\noom_group_kill 9\n");
  EXPECT_EQ(oom_evidence(watch).oom_kills, 2);
  watch.snapshot();
  EXPECT_EQ(oom_evidence(watch).oom_kills, 0);
}

TEST_F(EvidenceTest, CountsKillsOfACgroupOfVersion1) {
  write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/job\n0::/\n");
  write("/sys/fs/cgroup/memory/job/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  const OomWatch watch(root_);
  write("/sys/fs/cgroup/memory/job/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  EXPECT_EQ(oom_evidence(watch).oom_kills, 1);
  EXPECT_EQ(oom_evidence(watch).memory_limit_bytes, 0);  // "No limit" in version 1.
}

TEST_F(EvidenceTest, ReadsTheNearestCgroupThatCountsKills) {
  write("/proc/self/cgroup", "0::/a/b/c\n");
  write("/sys/fs/cgroup/a/memory.events", "oom_kill 1\n");
  write("/sys/fs/cgroup/a/memory.max", "max\n");
  const OomWatch watch(root_);
  write("/sys/fs/cgroup/a/memory.events", "oom_kill 2\n");
  EXPECT_EQ(oom_evidence(watch).oom_kills, 1);
  EXPECT_EQ(oom_evidence(watch).memory_limit_bytes, 0);
}

TEST_F(EvidenceTest, CountsKillsOnTheWholeMachine) {
  write("/proc/vmstat", "nr_free_pages 1\noom_kill 7\n");
  const OomWatch watch(root_);
  write("/proc/vmstat", "nr_free_pages 1\noom_kill 9\n");
  EXPECT_EQ(oom_evidence(watch).machine_oom_kills, 2);
  EXPECT_EQ(oom_evidence(watch).oom_kills, 0);
}

TEST_F(EvidenceTest, CountsNoKillsWithoutACounter) {
  const OomWatch watch(root_);
  EXPECT_EQ(oom_evidence(watch).oom_kills, 0);
  EXPECT_EQ(oom_evidence(watch).machine_oom_kills, 0);
}

TEST_F(EvidenceTest, FindsTheNewestMatchingCore) {
  write("/proc/sys/kernel/core_pattern", root_ + "/cores/%e.%p.%t\n");
  write("/cores/python3.4711.100", "old");
  write("/cores/python3.4711.200", "new");
  write("/cores/python3.4712.300", "of another process");
  const std::array<timespec, 2> past = {timespec{1000, 0}, timespec{1000, 0}};
  const std::string old_core = root_ + "/cores/python3.4711.100";
  ASSERT_EQ(::utimensat(AT_FDCWD, old_core.c_str(), past.data(), 0), 0);
  EXPECT_EQ(gather_evidence(core_request()).core_path, root_ + "/cores/python3.4711.200");
}

TEST_F(EvidenceTest, FindsACoreInTheWorkersFolder) {
  write("/proc/sys/kernel/core_pattern", "core\n");
  write("/proc/sys/kernel/core_uses_pid", "1\n");
  write("/work/core.4711", "core");
  EXPECT_EQ(gather_evidence(core_request()).core_path, root_ + "/work/core.4711");
}

TEST_F(EvidenceTest, NamesNoCoreThatDoesNotExistOrWasNotDumped) {
  write("/proc/sys/kernel/core_pattern", "core\n");
  EXPECT_EQ(gather_evidence(core_request()).core_path, "");
  write("/work/core", "of an earlier crash");
  EvidenceRequest request = core_request();
  request.core_dumped = false;
  EXPECT_EQ(gather_evidence(request).core_path, "");
}

TEST_F(EvidenceTest, NamesTheHandlerThatTakesTheCores) {
  write("/proc/sys/kernel/core_pattern", "|/usr/lib/systemd/systemd-coredump %P\n");
  const GatheredEvidence evidence = gather_evidence(core_request());
  EXPECT_EQ(evidence.core_handler, "coredumpctl info 4711");
  EXPECT_EQ(evidence.core_path, "");
}

TEST_F(EvidenceTest, MeasuresSharedMemory) {
  EvidenceRequest request;
  request.shm_dir = root_;
  const GatheredEvidence evidence = gather_evidence(request);
  EXPECT_GT(evidence.shm_total_bytes, 0);
  EXPECT_GE(evidence.shm_free_bytes, 0);
  EXPECT_LE(evidence.shm_free_bytes, evidence.shm_total_bytes);
  request.shm_dir = root_ + "/none";
  EXPECT_EQ(gather_evidence(request).shm_free_bytes, -1);
}

TEST_F(EvidenceTest, DoesNotCallADiskWithRoomFull) {
  EvidenceRequest request;
  request.log_dir = root_;
  EXPECT_EQ(gather_evidence(request).full_log_disk, "");
}

TEST_F(EvidenceTest, NamesTheKernelFunctionOfAStuckProcess) {
  write("/proc/77/wchan", "nfs_wait_bit_killable");
  EXPECT_EQ(stuck_process(entry_of_77(), proc()),
            (StuckProcess{77, -1, "a (b) c", 'D', "nfs_wait_bit_killable"}));
}

TEST_F(EvidenceTest, TakesAHiddenWchanAsUnknown) {
  EXPECT_EQ(stuck_process(entry_of_77(), proc()), (StuckProcess{77, -1, "a (b) c", 'D', ""}));
  write("/proc/77/wchan", "0");
  EXPECT_EQ(stuck_process(entry_of_77(), proc()), (StuckProcess{77, -1, "a (b) c", 'D', ""}));
}

TEST(Evidence, WorksOnThisMachine) {
  OomWatch watch;
  HostEvidence evidence;
  watch.fill(evidence);
  EXPECT_GE(evidence.oom_kills, 0);
  const std::optional<ProcessEntry> self = look_at_entry(::getpid());
  ASSERT_TRUE(self.has_value());
  EXPECT_EQ(stuck_process(*self).state, 'R');
  EXPECT_FALSE(stuck_process(*self).name.empty());
}

}  // namespace
}  // namespace muster
