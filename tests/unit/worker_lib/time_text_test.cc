#include "worker_lib/time_text.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

using std::chrono::milliseconds;

TEST(TimeText, GivesTheLimitAsItsUserSetIt) {
  const std::vector<std::pair<int64_t, const char*>> cases{{0, "0 ms"},
                                                           {1, "1 ms"},
                                                           {999, "999 ms"},
                                                           {1000, "1 s"},
                                                           {1001, "1.001 s"},
                                                           {1500, "1.5 s"},
                                                           {2000, "2 s"},
                                                           {59'990, "59.99 s"},
                                                           {600'000, "600 s"},
                                                           {1'800'000, "1800 s"},
                                                           {9'999'999, "9999.999 s"},
                                                           {86'400'000, "86400 s"}};
  for (const auto& [ms, text] : cases)
    EXPECT_EQ(time_text(milliseconds(ms)), text);
}

TEST(TimeText, AnUnknownLimitReadsInTime) {
  EXPECT_EQ(within(milliseconds(0)), "in time");
  EXPECT_EQ(within(milliseconds(-1)), "in time");
  EXPECT_EQ(within(milliseconds(1)), "within 1 ms");
  EXPECT_EQ(within(milliseconds(2000)), "within 2 s");
}

TEST(TimeText, AdviceFitsOneRankOrSeveral) {
  EXPECT_EQ(look_at(1), "check what it is doing instead, or give a longer timeout");
  EXPECT_EQ(look_at(2), "check what they are doing instead, or give a longer timeout");
  EXPECT_EQ(look_at(0), look_at(2));
}

}  // namespace
}  // namespace muster::worker
