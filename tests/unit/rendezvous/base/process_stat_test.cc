#include "rendezvous/base/process_stat.h"

#include <array>
#include <csignal>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster {
namespace {

// The kernel writes the program's name unescaped between the numbers.
TEST(ProcessStat, ParsesAnyProgramName) {
  std::array<char, 16> before{};
  ASSERT_EQ(prctl(PR_GET_NAME, before.data()), 0);
  const uint64_t started = start_ticks(stat_fields(getpid()));
  ASSERT_EQ(prctl(PR_SET_NAME, "x) Z 1 2 (\n) 3"), 0);
  const std::vector<std::string> fields = stat_fields(getpid());
  prctl(PR_SET_NAME, before.data());
  ASSERT_GE(fields.size(), 20U);
  EXPECT_EQ(fields[0], "R");
  EXPECT_EQ(fields[1], std::to_string(getppid()));
  EXPECT_FALSE(is_over(fields));
  EXPECT_GT(started, 0U);
  EXPECT_EQ(start_ticks(fields), started);
}

TEST(ProcessStat, AZombieIsOverAndHasNoStart) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  const std::vector<std::string> fields = stat_fields(child);
  EXPECT_FALSE(fields.empty());
  EXPECT_TRUE(is_over(fields));
  EXPECT_EQ(start_ticks(fields), 0U);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(stat_fields(child).empty());
  EXPECT_TRUE(is_over({}));
}

}  // namespace
}  // namespace muster
