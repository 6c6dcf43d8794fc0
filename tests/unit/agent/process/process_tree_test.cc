#include "agent/process/process_tree.h"

#include <algorithm>
#include <thread>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/process/exit_status.h"
#include "tests/wait_for.h"

namespace muster {
namespace {

// Starts a child that waits until it is killed.
pid_t sleeper() {
  const pid_t pid = fork();
  if (pid == 0) {
    while (true)
      pause();
  }
  return pid;
}

std::vector<pid_t> pids(const std::vector<ProcessEntry>& tree) {
  std::vector<pid_t> result;
  for (const ProcessEntry& process : tree)
    result.push_back(process.pid);
  std::ranges::sort(result);
  return result;
}

// Starts a child and a grandchild, which leaves for a session of its own, as another user if asked,
// and reports its pid through a pipe.
std::pair<pid_t, pid_t> two_generations(uid_t user_of_grandchild = geteuid()) {
  int fds[2];
  EXPECT_EQ(pipe(fds), 0);
  const pid_t child = fork();
  if (child == 0) {
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      setsid();
      if (setuid(user_of_grandchild) != 0) _exit(1);
      const pid_t self = getpid();
      if (write(fds[1], &self, sizeof self) < 0) _exit(1);
    }
    while (true)
      pause();
  }
  pid_t grandchild = 0;
  EXPECT_EQ(read(fds[0], &grandchild, sizeof grandchild), static_cast<ssize_t>(sizeof grandchild));
  close(fds[0]);
  close(fds[1]);
  return {child, grandchild};
}

TEST(ProcessStat, IsParsedWhateverTheNameHolds) {
  const auto process = parse_process_stat(
      "4711 (odd) name ( R) S 1 2 3 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 2 "
      "18446744073709551615");
  ASSERT_TRUE(process);
  EXPECT_EQ(process->pid, 4711);
  EXPECT_EQ(process->name, "odd) name ( R");
  EXPECT_EQ(process->state, 'S');
  EXPECT_EQ(process->parent, 1);
  EXPECT_EQ(process->group, 2);
  EXPECT_EQ(process->start_ticks, 987654u);
  EXPECT_EQ(process->reaped_cpu, std::chrono::milliseconds(150));
}

TEST(ProcessStat, AZombieHasTheStatusOfItsEnd) {
  const pid_t child = fork();
  if (child == 0) _exit(3);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  const std::optional<ProcessEntry> zombie = look_at_entry(child);
  ASSERT_TRUE(zombie);
  EXPECT_EQ(exit_status_from_wait(zombie->wait_status), ExitStatus::exited(3));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(zombie->wait_status, status);
}

TEST(ProcessStat, RefusesAMalformedLine) {
  EXPECT_FALSE(parse_process_stat(""));
  EXPECT_FALSE(parse_process_stat("12 no parentheses"));
  EXPECT_FALSE(parse_process_stat("12 (cut) S 1 2 3"));
}

TEST(ProcessTree, FindsEveryGenerationAndLeavesOutTheExcepted) {
  const auto [child, grandchild] = two_generations();
  std::vector<pid_t> both = {child, grandchild};
  std::ranges::sort(both);
  EXPECT_EQ(pids(descendants_of(getpid(), {})), both);
  EXPECT_EQ(pids(descendants_of(getpid(), {child})), std::vector<pid_t>{});  // The whole subtree.
  EXPECT_EQ(pids(descendants_of(getpid(), {grandchild})), std::vector<pid_t>{child});
  EXPECT_EQ(children_of_self(), std::set<pid_t>{child});
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  EXPECT_TRUE(kill_descendants({}, std::chrono::seconds(30)).empty());
}

TEST(ProcessTree, FindsTheUsersOfEveryGeneration) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to run as another user";
  constexpr uid_t kOther = 4711;
  two_generations(kOther);
  EXPECT_EQ(users_below(getpid()), (std::set<uid_t>{0, kOther}));
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  EXPECT_TRUE(kill_descendants({}, std::chrono::seconds(30)).empty());
}

TEST(ProcessTree, KnowsWhetherAProcessIsAtOrBelowAnother) {
  const auto [child, grandchild] = two_generations();
  const pid_t other = sleeper();
  EXPECT_TRUE(is_at_or_below(child, child));
  EXPECT_TRUE(is_at_or_below(grandchild, child));
  EXPECT_TRUE(is_at_or_below(grandchild, getpid()));
  EXPECT_FALSE(is_at_or_below(child, grandchild));
  EXPECT_FALSE(is_at_or_below(grandchild, other));
  EXPECT_FALSE(is_at_or_below(0, child));
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  EXPECT_TRUE(kill_descendants({}, std::chrono::seconds(30)).empty());
}

TEST(ProcessTree, KillsOrphansThatASubreaperAdoptsAndSparesTheExcepted) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const auto [child, grandchild] = two_generations();
  const pid_t spared = sleeper();
  EXPECT_TRUE(kill_descendants({spared}, std::chrono::seconds(30)).empty());
  EXPECT_EQ(kill(child, 0), -1);
  EXPECT_EQ(kill(grandchild, 0), -1);
  EXPECT_EQ(kill(spared, 0), 0);
  EXPECT_TRUE(kill_descendants({}, std::chrono::seconds(30)).empty());
  EXPECT_EQ(kill(spared, 0), -1);
}

TEST(ProcessTree, AProcessIsNotExitingIfOnlyItsMainThreadHasEnded) {
  const pid_t child = fork();
  if (child == 0) {
    std::thread([] { pause(); }).detach();
    syscall(SYS_exit, 0);  // Ends this thread; pthread_exit() would unwind through the test.
  }
  const auto has_no_main_thread = [&] {
    const auto process = look_at_entry(child);
    return process && process->state == 'Z';
  };
  ASSERT_TRUE(test::wait_for(has_no_main_thread, "the main thread has ended"));
  EXPECT_EQ(is_exiting(child), false);
  kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(is_exiting(child), true);
  waitpid(child, nullptr, 0);
}

TEST(ProcessTree, KillsAStoppedProcess) {
  const pid_t stopped = sleeper();
  kill(stopped, SIGSTOP);
  EXPECT_TRUE(kill_descendants({}, std::chrono::seconds(30)).empty());
}

TEST(ProcessTree, SignalsNoProcessThatHasReusedThePid) {
  const pid_t child = sleeper();
  std::vector<ProcessEntry> tree = descendants_of(getpid(), {});
  ASSERT_EQ(tree.size(), 1u);
  ProcessEntry another = tree[0];
  another.start_ticks += 1;  // As if another process had the pid now.
  EXPECT_EQ(signal_process(another, SIGKILL), SignalOutcome::gone);
  EXPECT_EQ(kill(child, 0), 0);
  EXPECT_EQ(signal_process(tree[0], SIGKILL), SignalOutcome::sent);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(signal_process(tree[0], SIGKILL), SignalOutcome::gone);
}

}  // namespace
}  // namespace muster
