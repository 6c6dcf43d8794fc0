#include "agent/process/device_probe.h"

#include <string>

#include <gtest/gtest.h>

namespace muster {
namespace {

// A flag of this test program, which the probe starts in place of muster: its answer takes several
// reads.
constexpr const char* kLongAnswer = "--gtest_list_tests";

struct Asking {
  boost::asio::io_context io;
  WorkerProcesses processes{io, {}};
  DeviceProbe probe{io, processes};
  std::string answer;

  void ask() {
    probe.ask(kLongAnswer, std::chrono::seconds{60},
              [this](const Result<std::string>& result) { answer = result.value_or("failed"); });
  }
};

TEST(DeviceProbe, AnswersWithAllThatTheChildPrinted) {
  Asking asking;
  asking.ask();
  while (asking.answer.empty())
    asking.io.run_one();
  EXPECT_GT(asking.answer.size(), 512u);  // More than the first read takes.
  EXPECT_NE(asking.answer.find("AnswersWithAllThatTheChildPrinted"), std::string::npos);
}

TEST(DeviceProbe, MayBeCancelledBetweenTwoPiecesOfAnAnswer) {
  for (int turns = 1; turns < 6; ++turns) {
    Asking asking;
    asking.ask();
    for (int i = 0; i < turns && asking.answer.empty(); ++i)
      asking.io.run_one();
    asking.probe.cancel();
    asking.io.poll();
    EXPECT_NE(asking.answer, "failed") << turns;
  }
}

}  // namespace
}  // namespace muster
