#include "agent/process/file_timer.h"

#include <limits>
#include <ostream>

#include <gtest/gtest.h>

namespace muster {

void PrintTo(const FileTimerExpiry& expiry, std::ostream* out) {
  *out << "{pid " << expiry.pid << ", signal " << expiry.signal << ", scope " << expiry.scope
       << ", at " << expiry.expiration_time << ", scopes";
  for (const std::string& scope : expiry.scopes)
    *out << " " << scope;
  *out << "}";
}

namespace {

using Expiries = std::vector<FileTimerExpiry>;

TEST(FileTimerLine, TorchsRequestIsUnderstood) {
  const Result<FileTimerRequest> request = parse_file_timer_line(
      R"({"version": 1, "pid": 123, "scope_id": "s", "expiration_time": 1700000000.5, )"
      R"("signal": 9})");
  ASSERT_TRUE(request);
  EXPECT_EQ(*request, (FileTimerRequest{123, "s", 1700000000.5, 9}));
}

TEST(FileTimerLine, ReleaseAndWholeNumbersAndUnknownMembersAreUnderstood) {
  const Result<FileTimerRequest> request = parse_file_timer_line(
      R"({"pid": 2, "scope_id": "", "expiration_time": -1, "signal": 0, "extra": [1]})");
  ASSERT_TRUE(request);
  EXPECT_EQ(*request, (FileTimerRequest{2, "", -1, 0}));
}

TEST(FileTimerLine, NegativeSignalMeansLogOnlyAndIsAccepted) {
  const Result<FileTimerRequest> request =
      parse_file_timer_line(R"({"pid": 5, "scope_id": "a", "expiration_time": 3, "signal": -1})");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->signal, -1);
}

TEST(FileTimerLine, AnythingElseIsIgnoredWithAReason) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "it is not JSON"},
      {"kill them all", "it is not JSON"},
      {R"({"pid": 1)", "it is not JSON"},
      {"[1,2]", "it is not an object"},
      {R"({"scope_id":"s","expiration_time":1,"signal":9})",
       "pid is missing or not a process number"},
      {R"({"pid":"12","scope_id":"s","expiration_time":1,"signal":9})",
       "pid is missing or not a process number"},
      {R"({"pid":12.5,"scope_id":"s","expiration_time":1,"signal":9})",
       "pid is missing or not a process number"},
      {R"({"pid":4294967308,"scope_id":"s","expiration_time":1,"signal":9})",
       "pid is missing or not a process number"},
      {R"({"pid":18446744073709551615,"scope_id":"s","expiration_time":1,"signal":9})",
       "pid is missing or not a process number"},
      {R"({"pid":12,"expiration_time":1,"signal":9})", "scope_id is not a string"},
      {R"({"pid":12,"scope_id":3,"expiration_time":1,"signal":9})", "scope_id is not a string"},
      {R"({"pid":12,"scope_id":"s","signal":9})", "expiration_time is not a number"},
      {R"({"pid":12,"scope_id":"s","expiration_time":"1","signal":9})",
       "expiration_time is not a number"},
      {R"({"pid":12,"scope_id":"s","expiration_time":1})",
       "signal is missing or not a signal number"},
      {R"({"pid":12,"scope_id":"s","expiration_time":1,"signal":65})",
       "signal is missing or not a signal number"},
  };
  for (const auto& [line, reason] : cases) {
    const Result<FileTimerRequest> request = parse_file_timer_line(line);
    ASSERT_FALSE(request) << line;
    EXPECT_EQ(request.error().message,
              "ignored a line in the timer FIFO: " + reason +
                  "; expected one JSON object with pid, scope_id, expiration_time and signal");
  }
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
  EXPECT_EQ(timers.expired(99.9), Expiries{});
  EXPECT_EQ(timers.next_deadline(), 100);
  EXPECT_EQ(timers.expired(100), (Expiries{{10, 9, "a", 100, {"a"}}}));
  EXPECT_TRUE(timers.empty());
}

TEST(FileTimers, WithoutTimersThereIsNoDeadline) {
  FileTimers timers;
  EXPECT_EQ(timers.next_deadline(), std::nullopt);
  EXPECT_EQ(timers.expired(1e12), Expiries{});
}

TEST(FileTimers, AcquiringAgainReplacesTheTimer) {
  FileTimers timers;
  timers.apply({10, "a", 100, 9});
  timers.apply({10, "a", 200, 15});
  EXPECT_EQ(timers.next_deadline(), 200);
  EXPECT_EQ(timers.expired(150), Expiries{});
  EXPECT_EQ(timers.expired(200), (Expiries{{10, 15, "a", 200, {"a"}}}));
}

TEST(FileTimers, ReleaseConcernsOneScopeOfOneProcess) {
  FileTimers timers;
  timers.apply({10, "a", 100, 9});
  timers.apply({10, "b", 110, 9});
  timers.apply({11, "a", 120, 9});
  timers.apply({10, "a", -1, 0});
  timers.apply({12, "never acquired", -1, 0});
  EXPECT_EQ(timers.expired(1000), (Expiries{{10, 9, "b", 110, {"b"}}, {11, 9, "a", 120, {"a"}}}));
}

TEST(FileTimers, EarliestTimerWithASignalDecides) {
  FileTimers timers;
  timers.apply({10, "log only", 50, 0});
  timers.apply({10, "late", 90, 9});
  timers.apply({10, "early", 80, 15});
  EXPECT_EQ(timers.expired(100), (Expiries{{10, 15, "early", 80, {"log only", "early", "late"}}}));
}

TEST(FileTimers, WithoutAnySignalTheExpiryIsReportedOnce) {
  FileTimers timers;
  timers.apply({10, "b", 50, -1});
  timers.apply({10, "a", 50, 0});
  EXPECT_EQ(timers.expired(50), (Expiries{{10, 0, "a", 50, {"a", "b"}}}));
  EXPECT_EQ(timers.expired(60), Expiries{});
}

TEST(FileTimers, ExpiryDropsTheProcessesOtherTimersToo) {
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
  EXPECT_EQ(timers.expired(100), (Expiries{{11, 9, "a", 50, {"a"}}}));
}

TEST(FileTimers, ZeroIsAnExpirationLongPastAndNoRelease) {
  FileTimers timers;
  timers.apply({10, "a", 0, 9});
  EXPECT_EQ(timers.expired(1), (Expiries{{10, 9, "a", 0, {"a"}}}));
}

}  // namespace
}  // namespace muster
