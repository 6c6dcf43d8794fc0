#include "agent/process/file_timer.h"

#include <limits>
#include <ostream>

#include <gtest/gtest.h>

namespace muster {

void PrintTo(const FileTimer& timer, std::ostream* out) {
  *out << "{pid " << timer.pid << ", scope " << timer.scope << ", at " << timer.expiration_time
       << ", signal " << timer.signal << "}";
}

namespace {

using Timers = std::vector<FileTimer>;

TEST(FileTimerLine, ParsesTheRequestThatTorchWrites) {
  const std::optional<FileTimer> request = parse_file_timer_line(
      R"({"version": 1, "pid": 123, "scope_id": "s", "expiration_time": 1700000000.5, )"
      R"("signal": 9})");
  ASSERT_TRUE(request);
  EXPECT_EQ(*request, (FileTimer{123, "s", 1700000000.5, 9}));
}

TEST(FileTimerLine, ParsesReleasesWholeNumbersAndUnknownMembers) {
  const std::optional<FileTimer> request = parse_file_timer_line(
      R"({"pid": 2, "scope_id": "", "expiration_time": -1, "signal": 0, "extra": [1]})");
  ASSERT_TRUE(request);
  EXPECT_EQ(*request, (FileTimer{2, "", -1, 0}));
}

TEST(FileTimerLine, NegativeSignalMeansLogOnlyAndIsAccepted) {
  const std::optional<FileTimer> request =
      parse_file_timer_line(R"({"pid": 5, "scope_id": "a", "expiration_time": 3, "signal": -1})");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->signal, 0);
}

TEST(FileTimerLine, RefusesAnyOtherText) {
  const std::vector<std::string> lines = {
      "",
      "kill them all",
      R"({"pid": 1)",
      "[1,2]",
      R"({"scope_id":"s","expiration_time":1,"signal":9})",
      R"({"pid":"12","scope_id":"s","expiration_time":1,"signal":9})",
      R"({"pid":12.5,"scope_id":"s","expiration_time":1,"signal":9})",
      R"({"pid":4294967308,"scope_id":"s","expiration_time":1,"signal":9})",
      R"({"pid":18446744073709551615,"scope_id":"s","expiration_time":1,"signal":9})",
      R"({"pid":12,"expiration_time":1,"signal":9})",
      R"({"pid":12,"scope_id":3,"expiration_time":1,"signal":9})",
      R"({"pid":12,"scope_id":"s","signal":9})",
      R"({"pid":12,"scope_id":"s","expiration_time":"1","signal":9})",
      R"({"pid":12,"scope_id":"s","expiration_time":1})",
      R"({"pid":12,"scope_id":"s","expiration_time":1,"signal":65})",
  };
  for (const std::string& line : lines)
    EXPECT_FALSE(parse_file_timer_line(line)) << line;
}

TEST(FileTimerLine, ProcessGroupsAndInitCannotBeNamed) {
  for (const char* pid : {"0", "-1", "-77", "1"}) {
    EXPECT_FALSE(parse_file_timer_line(std::string(R"({"pid":)") + pid +
                                       R"(,"scope_id":"s","expiration_time":1,"signal":9})"))
        << pid;
  }
}

TEST(FileTimerLine, TimeBeyondDoubleIsRefused) {
  EXPECT_FALSE(
      parse_file_timer_line(R"({"pid":12,"scope_id":"s","expiration_time":1e999,"signal":9})"));
}

TEST(FileTimers, NothingExpiresBeforeItsTime) {
  FileTimers timers;
  timers.apply({10, "a", 100, 9});
  EXPECT_EQ(timers.expired(99.9), Timers{});
  EXPECT_EQ(timers.next_deadline(), 100);
  EXPECT_EQ(timers.expired(100), (Timers{{10, "a", 100, 9}}));
  EXPECT_EQ(timers.next_deadline(), std::nullopt);
}

TEST(FileTimers, HaveNoDeadlineIfThereAreNone) {
  FileTimers timers;
  EXPECT_EQ(timers.next_deadline(), std::nullopt);
  EXPECT_EQ(timers.expired(1e12), Timers{});
}

TEST(FileTimers, AcquiringAgainReplacesTheTimer) {
  FileTimers timers;
  timers.apply({10, "a", 100, 9});
  timers.apply({10, "a", 200, 15});
  EXPECT_EQ(timers.next_deadline(), 200);
  EXPECT_EQ(timers.expired(150), Timers{});
  EXPECT_EQ(timers.expired(200), (Timers{{10, "a", 200, 15}}));
}

TEST(FileTimers, ReleaseConcernsOneScopeOfOneProcess) {
  FileTimers timers;
  timers.apply({10, "a", 100, 9});
  timers.apply({10, "b", 110, 9});
  timers.apply({11, "a", 120, 9});
  timers.apply({10, "a", -1, 0});
  timers.apply({12, "never acquired", -1, 0});
  EXPECT_EQ(timers.expired(1000), (Timers{{10, "b", 110, 9}, {11, "a", 120, 9}}));
}

TEST(FileTimers, EarliestTimerWithASignalDecides) {
  FileTimers timers;
  timers.apply({10, "log only", 50, 0});
  timers.apply({10, "late", 90, 9});
  timers.apply({10, "early", 80, 15});
  EXPECT_EQ(timers.expired(100), (Timers{{10, "early", 80, 15}}));
}

TEST(FileTimers, ReportAnExpiryWithoutASignalOnce) {
  FileTimers timers;
  timers.apply({10, "b", 50, 0});
  timers.apply({10, "a", 50, 0});
  EXPECT_EQ(timers.expired(50), (Timers{{10, "a", 50, 0}}));
  EXPECT_EQ(timers.expired(60), Timers{});
}

TEST(FileTimers, ExpiryDropsAllTimersOfTheProcess) {
  FileTimers timers;
  timers.apply({10, "due", 50, 9});
  timers.apply({10, "later", 500, 9});
  timers.apply({9, "other process", 600, 9});
  timers.expired(50);
  EXPECT_EQ(timers.next_deadline(), 600);
}

TEST(FileTimers, ForgottenProcessNeverExpires) {
  FileTimers timers;
  timers.apply({10, "a", 50, 9});
  timers.apply({10, "", 50, 9});
  timers.apply({11, "a", 50, 9});
  timers.forget(10);
  timers.forget(999);
  EXPECT_EQ(timers.expired(100), (Timers{{11, "a", 50, 9}}));
}

TEST(FileTimers, ZeroIsAPastExpirationAndNotARelease) {
  FileTimers timers;
  timers.apply({10, "a", 0, 9});
  EXPECT_EQ(timers.expired(1), (Timers{{10, "a", 0, 9}}));
}

}  // namespace
}  // namespace muster
