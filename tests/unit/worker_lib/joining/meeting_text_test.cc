#include "worker_lib/joining/meeting_text.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

constexpr std::chrono::steady_clock::time_point kMeetingBegun{std::chrono::hours(5)};

// The clock is read a moment before or after the timeout begins.
TEST(MeetingText, RoundsTheLimitToTheOneThatWasGiven) {
  const std::vector<std::pair<int, const char*>> cases{
      {3000, "within 3 s"},   {2996, "within 3 s"}, {3004, "within 3 s"},   {2990, "within 2.99 s"},
      {1500, "within 1.5 s"}, {997, "within 1 s"},  {250, "within 250 ms"}, {8, "within 10 ms"},
      {4, "in time"},         {0, "in time"},       {-1000, "in time"}};
  for (const auto& [ms, text] : cases)
    EXPECT_EQ(within_limit(kMeetingBegun, kMeetingBegun + milliseconds(ms)), text) << ms;
}

TEST(MeetingText, TimeLeftIsNeverNegative) {
  const auto now = std::chrono::steady_clock::now();
  EXPECT_EQ(time_left(now), Duration::zero());
  EXPECT_EQ(time_left(now - hours(1)), Duration::zero());
  EXPECT_LE(time_left(now + hours(1)), hours(1));
  EXPECT_GT(time_left(now + hours(2)), hours(1));
}

TEST(MeetingText, AWaitingRankSaysWhatItWaitsFor) {
  std::vector<std::string> said;
  const MeetingOptions options{.deadline = kMeetingBegun + hours(1),
                               .begun = kMeetingBegun,
                               .patience = milliseconds(2500),
                               .say = [&](const std::string& line) { said.push_back(line); }};
  EXPECT_EQ(end_of_patience(options), kMeetingBegun + milliseconds(2500));
  Identity self;
  self.rank = 2;
  say_that_it_waits(self, options, "rank 0 at node7:29500");
  EXPECT_EQ(said,
            std::vector<std::string>{"muster: rank 2 has waited 2.5 s for rank 0 at node7:29500"});
}

TEST(MeetingText, TwoRanksPerNodeMayReportAndAllOfUnknownPlace) {
  const auto speaks = [](int local_rank, bool told) {
    Identity self;
    self.local_rank = local_rank;
    self.place_told.local_rank = told;
    return may_speak(self);
  };
  EXPECT_TRUE(speaks(0, true));
  EXPECT_TRUE(speaks(1, true));
  EXPECT_FALSE(speaks(2, true));
  EXPECT_TRUE(speaks(2, false));
}

TEST(MeetingText, RunningOutOfDescriptorsIsNotAStoreFailure) {
  EXPECT_EQ(meeting_store_failure({ExitCode::environment, "no descriptor is left"}).value(),
            (Failure{ErrorCode::environment, "no descriptor is left"}));
  EXPECT_EQ(meeting_store_failure({ExitCode::internal, "the store is gone"}).value(),
            (Failure{ErrorCode::rendezvous, "the store is gone"}));
}

}  // namespace
}  // namespace muster::worker
