#include "worker_lib/watch/process_life.h"

#include <array>
#include <csignal>
#include <optional>
#include <string>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/base/machine.h"

namespace muster::worker {
namespace {

RC_GTEST_PROP(ProcessLife, SurvivesEncoding, ()) {
  const ProcessLife life{*rc::gen::nonEmpty(rc::gen::arbitrary<std::string>()),
                         *rc::gen::arbitrary<uint64_t>(), *rc::gen::arbitrary<int>(),
                         *rc::gen::arbitrary<uint64_t>()};
  RC_ASSERT(ProcessLife::parse(life.to_string()) == life);
}

TEST(ProcessLife, OnlyWholeNumbersAreRead) {
  EXPECT_EQ(ProcessLife::parse("a/b/1/2/3"), (ProcessLife{"a/b", 1, 2, 3}));
  for (const char* text : {"a/1/2/3 ", "a/1/2/", "a/1/2/+3", "a/-1/2/3", "a/1/2147483648/3",
                           "a/18446744073709551616/2/3", "a/1/2/18446744073709551616", "///"})
    EXPECT_EQ(ProcessLife::parse(text), std::nullopt) << text;
}

// The kernel writes the program's name among the numbers, as it is.
TEST(ProcessLife, AProgramMayCallItselfAnything) {
  std::array<char, 16> before{};
  ASSERT_EQ(prctl(PR_GET_NAME, before.data()), 0);
  const ProcessLife life = life_of_process(getpid());
  ASSERT_EQ(prctl(PR_SET_NAME, "x) Z 1 2 (\n) 3"), 0);
  EXPECT_EQ(life_of_process(getpid()), life);
  EXPECT_EQ(state_of(life), ProcessState::running);
  EXPECT_FALSE(is_exiting(getpid()));
  prctl(PR_SET_NAME, before.data());
}

TEST(ProcessLife, APidWithoutAProcessHasNoStart) {
  for (const int pid : {0, -1, 1 << 30}) {
    const ProcessLife none = life_of_process(pid);
    EXPECT_EQ(none.pid, pid);
    EXPECT_EQ(none.started, 0U);
    EXPECT_FALSE(surely_lives(none));
    EXPECT_FALSE(is_exiting(pid));
  }
}

TEST(ProcessLife, TheStateOfAnInvisibleProcessIsUnknown) {
  const ProcessLife life = life_of_process(getpid());
  EXPECT_EQ(state_of(life), ProcessState::running);
  ProcessLife other = life;
  other.started += 1;
  EXPECT_EQ(state_of(other), ProcessState::over) << "a later process of the number";
  other = life;
  other.boot += "x";
  EXPECT_EQ(state_of(other), ProcessState::unknown);
  other = life;
  other.pid_namespace = 0;
  EXPECT_EQ(state_of(other), ProcessState::unknown);
  other = life;
  other.started = 0;
  EXPECT_EQ(state_of(other), ProcessState::unknown);
}

TEST(ProcessLife, AStoppedProcessIsStoppedUntilItContinuesOrEnds) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const ProcessLife life = life_of_process(child);
  EXPECT_EQ(state_of(life), ProcessState::running);
  kill(child, SIGSTOP);
  waitpid(child, nullptr, WUNTRACED);
  EXPECT_EQ(state_of(life), ProcessState::stopped);
  EXPECT_TRUE(surely_lives(life));
  kill(child, SIGCONT);
  waitpid(child, nullptr, WCONTINUED);
  EXPECT_EQ(state_of(life), ProcessState::running);
  kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(state_of(life), ProcessState::over) << "not reaped yet";
  waitpid(child, nullptr, 0);
  EXPECT_EQ(state_of(life), ProcessState::over);
}

TEST(ProcessLife, OwnHostnameIsThatOfTheKernel) {
  std::array<char, 256> name{};
  ASSERT_EQ(gethostname(name.data(), name.size() - 1), 0);
  EXPECT_EQ(own_hostname(), name.data());
}

}  // namespace
}  // namespace muster::worker
