#include "worker_lib/watch/process_life.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <future>
#include <optional>
#include <string>
#include <vector>

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
  for (const char* text :
       {"", "a", "a/1/2", "/1/2/3", "a/1/2/3 ", "a/1/2/", "a/1/2/+3", "a/-1/2/3",
        "a/1/2147483648/3", "a/18446744073709551616/2/3", "a/1/2/18446744073709551616", "///"})
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

TEST(ProcessLife, ALaterProcessWithTheSamePidDiffers) {
  ProcessLife life = life_of_process(getpid());
  EXPECT_EQ(state_of(life), ProcessState::running);
  life.started -= 1;
  EXPECT_EQ(state_of(life), ProcessState::over);
}

TEST(ProcessLife, AProcessThatIsNotVisibleMayLive) {
  using Change = void (*)(ProcessLife&);
  const std::vector<Change> changes{[](ProcessLife& life) { life.boot += "x"; },
                                    [](ProcessLife& life) { life.pid_namespace += 1; },
                                    [](ProcessLife& life) { life.pid_namespace = 0; },
                                    [](ProcessLife& life) { life.started = 0; }};
  for (size_t i = 0; i < changes.size(); ++i) {
    ProcessLife other = life_of_process(getpid());
    changes[i](other);
    EXPECT_EQ(state_of(other), ProcessState::unknown) << "change " << i;
    EXPECT_TRUE(may_still_live(other)) << "change " << i;
    EXPECT_FALSE(surely_lives(other)) << "change " << i;
  }
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
  EXPECT_TRUE(surely_lives(life));
  EXPECT_FALSE(is_exiting(child));
  kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(state_of(life), ProcessState::over) << "not reaped yet";
  EXPECT_TRUE(is_exiting(child));
  EXPECT_FALSE(may_still_live(life));
  waitpid(child, nullptr, 0);
  EXPECT_EQ(state_of(life), ProcessState::over);
}

TEST(ProcessLife, AllThreadsReportOneNodeThatNamesTheNetwork) {
  const std::string node = node_identity();
  EXPECT_EQ(std::async(std::launch::async, node_identity).get(), node);
  EXPECT_EQ(std::count(node.begin(), node.end(), '/'), 2);
  EXPECT_EQ(node.find("/0/"), std::string::npos) << node;
}

TEST(ProcessLife, OwnHostnameIsThatOfTheKernel) {
  std::array<char, 256> name{};
  ASSERT_EQ(gethostname(name.data(), name.size() - 1), 0);
  EXPECT_EQ(own_hostname(), name.data());
}

}  // namespace
}  // namespace muster::worker
