#include "agent/process/exit_status.h"

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster {
namespace {

// Returns how a real child ended.
ExitStatus end_of_child(int code, int signal) {
  const pid_t pid = fork();
  if (pid == 0) {
    if (signal != 0) {
      std::signal(signal, SIG_DFL);
      raise(signal);
    }
    _exit(code);
  }
  siginfo_t info{};
  EXPECT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED), 0);
  return exit_status_from_siginfo(info.si_code, info.si_status);
}

TEST(ExitStatus, IsReadFromTheKernel) {
  for (const int code : {0, 1, 42, 255})
    EXPECT_EQ(end_of_child(code, 0), ExitStatus::exited(code));
  for (const int signal : {SIGKILL, SIGTERM, SIGUSR1})
    EXPECT_EQ(end_of_child(0, signal), ExitStatus::signaled(signal));
}

TEST(ExitStatus, KnowsACoreDump) {
  EXPECT_EQ(exit_status_from_siginfo(CLD_DUMPED, SIGSEGV), ExitStatus::signaled(SIGSEGV, true));
}

TEST(ExitStatusDeathTest, RefusesAProcessThatHasNotEnded) {
  EXPECT_DEATH(exit_status_from_siginfo(CLD_STOPPED, SIGTSTP), "internal error: CHECK");
}

TEST(ExitStatus, HasTheCodesOfShellsAndOfTorchrun) {
  EXPECT_EQ(ExitStatus::exited(42).code(), 42);
  EXPECT_EQ(ExitStatus::exited(42).signed_code(), 42);
  EXPECT_EQ(ExitStatus::signaled(SIGKILL).code(), 137);
  EXPECT_EQ(ExitStatus::signaled(SIGKILL).signed_code(), -9);
}

TEST(ExitStatus, OnlyExitZeroIsSuccess) {
  EXPECT_TRUE(ExitStatus::exited(0).success());
  EXPECT_FALSE(ExitStatus::exited(1).success());
  EXPECT_FALSE(ExitStatus::signaled(SIGTERM).success());
  EXPECT_TRUE(ExitStatus::signaled(SIGTERM).killed_by(SIGTERM));
  EXPECT_FALSE(ExitStatus::exited(SIGTERM).killed_by(SIGTERM));
}

TEST(ExitStatus, IsDescribedInWords) {
  EXPECT_EQ(describe(ExitStatus::exited(0)), "exited with 0");
  EXPECT_EQ(describe(ExitStatus::exited(3)), "exited with 3");
  EXPECT_EQ(describe(ExitStatus::signaled(SIGTERM)), "killed by SIGTERM");
  EXPECT_EQ(describe(ExitStatus::signaled(SIGSEGV, true)), "killed by SIGSEGV (core dumped)");
}

}  // namespace
}  // namespace muster
