#include "agent/process/helper_process.h"

#include <string>

#include <gtest/gtest.h>

namespace muster {
namespace {

// Flag of this test program, which HelperProcess starts in place of muster; its answer takes
// several reads.
constexpr const char* kLongAnswer = "--gtest_list_tests";

struct Asking {
  boost::asio::io_context io;
  WorkerProcesses processes{io, {}};
  HelperProcess helper{io, processes};
  std::string answer;

  void ask() {
    helper.ask(
        {.arguments = {kLongAnswer}, .limit = std::chrono::seconds{60}, .what = {}, .late = {}},
        [this](const Result<std::string>& result) { answer = result.value_or("failed"); });
  }
};

TEST(HelperProcess, AnswersWithAllThatTheChildPrinted) {
  Asking asking;
  asking.ask();
  while (asking.answer.empty())
    asking.io.run_one();
  EXPECT_GT(asking.answer.size(), 512u);  // More than the first read takes.
  EXPECT_NE(asking.answer.find("AnswersWithAllThatTheChildPrinted"), std::string::npos);
}

TEST(HelperProcess, MayBeCancelledBetweenTwoPiecesOfAnAnswer) {
  for (int turns = 1; turns < 6; ++turns) {
    Asking asking;
    asking.ask();
    for (int i = 0; i < turns && asking.answer.empty(); ++i)
      asking.io.run_one();
    asking.helper.cancel();
    asking.io.poll();
    EXPECT_NE(asking.answer, "failed") << turns;
  }
}

}  // namespace
}  // namespace muster
