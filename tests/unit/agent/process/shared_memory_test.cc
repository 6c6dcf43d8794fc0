#include "agent/process/shared_memory.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/wait_for.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

// A folder that is removed with its content at the end.
struct Folder {
  Folder() { path = mkdtemp(path.data()); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path = "/tmp/shared_memory_test_XXXXXX";
};

pid_t dead_process() {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  waitpid(pid, nullptr, 0);
  return pid;
}

ProcessEntry entry(pid_t pid, const std::string& name) {
  ProcessEntry process;
  process.pid = pid;
  process.state = 'S';
  process.name = name;
  return process;
}

std::vector<pid_t> numbers_of(const std::vector<ProcessEntry>& processes) {
  std::vector<pid_t> found;
  for (const ProcessEntry& process : processes)
    found.push_back(process.pid);
  return found;
}

TEST(KillOrder, SparesCleanUpHelpersForASecondAfterTheOtherProcesses) {
  KillOrder order;
  const ProcessEntry helper = entry(-1, "torch_shm_manag");
  EXPECT_EQ(numbers_of(order.due({entry(-2, "python"), helper})), std::vector<pid_t>{-2});
  EXPECT_TRUE(order.spares());
  EXPECT_FALSE(order.only_helpers());
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(numbers_of(order.due({helper})), std::vector<pid_t>{});
  EXPECT_TRUE(order.only_helpers());
  test::wait_for([&] { return !order.due({helper}).empty(); }, "the helper is due");
  EXPECT_GE(std::chrono::steady_clock::now() - began, KillOrder::kCleanUp - 1ms);
  EXPECT_FALSE(order.spares());
}

TEST(SharedFiles, BelongToTheJobOnlyIfMadeWhileADeadProcessHadThePid) {
  const Folder folder;
  const pid_t dead = dead_process();
  const pid_t older = dead_process();
  const pid_t later = dead_process();
  const auto now = std::chrono::system_clock::now();
  const PidHeld held{now - 10s, now + 10s};
  const SeenProcesses seen{{dead, held},
                           {older, {now + 10s, now + 20s}},
                           {later, {now - 20s, now - 10s}},
                           {getpid(), held}};
  const auto path = [&](const std::string& name) { return folder.path + "/" + name; };
  const std::string ours = path("torch_" + std::to_string(dead) + "_1804289383_0");
  for (const std::string& name :
       {ours, path("torch_" + std::to_string(older) + "_1_0"),
        path("torch_" + std::to_string(later) + "_1_0"),
        path("torch_" + std::to_string(getpid()) + "_1_0"),
        path("torch_" + std::to_string(dead_process()) + "_1_0"),
        path("torch_" + std::to_string(dead)), path("psm_" + std::to_string(dead) + "_1_0"),
        path("torch__1_0"), path("torch_-" + std::to_string(dead) + "_1")}) {
    std::ofstream(name) << "x";
  }
  EXPECT_EQ(files_of_dead(seen, folder.path), std::vector<std::string>{ours});
  EXPECT_EQ(files_of_dead(seen, path("missing")), std::vector<std::string>{});
}

TEST(SharedFiles, MayHavePidsOfAContainerThatSharesTheFolder) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t maker = fork();
  if (maker == 0) {
    if (unshare(CLONE_NEWPID) != 0) _exit(1);
    const pid_t contained = fork();
    if (contained == 0) {
      if (write(ready[1], "x", 1) == 1) pause();
      _exit(0);
    }
    waitpid(contained, nullptr, 0);
    _exit(0);
  }
  close(ready[1]);
  char byte = 0;
  const bool is_contained = read(ready[0], &byte, 1) == 1;
  const bool only_ours = has_only_our_pids("/dev/shm");
  for (const ProcessEntry& process : descendants_of(maker, {}))
    kill(process.pid, SIGKILL);
  waitpid(maker, nullptr, 0);
  close(ready[0]);
  if (!is_contained) GTEST_SKIP() << "needs root, to make a PID namespace";
  EXPECT_FALSE(only_ours);
}

}  // namespace
}  // namespace muster
