#include "worker_lib/watch/watch_stop.h"

#include <atomic>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/instants.h"

namespace muster::worker {
namespace {

using Lines = std::vector<std::string>;

const std::string kStopText = "the job was told to end (SIGTERM)";

// Records what it reports to the other ranks and what it publishes here, in order.
class StopOfRankOne {
 public:
  explicit StopOfRankOne(std::function<std::optional<Failure>()> ask_cause = {},
                         StopPolicy policy = StopPolicy::end_calls) {
    Outcome<std::unique_ptr<StopSignal>> signal = StopSignal::install(StopPolicy::ignore);
    if (!signal) std::abort();
    stop_ = std::make_unique<WatchStop>(
        WatchStop::Options{GlobalRank{1}, policy, std::move(ask_cause), [this] { ++wakes_; },
                           [this](const Watch::News& news) { write_down("told: ", news); },
                           [this](const Watch::News& news) { write_down("published: ", news); }},
        std::move(*signal));
  }

  WatchStop& operator*() { return *stop_; }
  WatchStop* operator->() { return stop_.get(); }
  const Lines& lines() const { return lines_; }
  void wait_for_a_wake() const {
    while (wakes_ == 0)
      std::this_thread::yield();
  }

 private:
  void write_down(const char* how, const Watch::News& news) {
    EXPECT_EQ(news.kind, Watch::News::Kind::stopped);
    EXPECT_EQ(news.rank, GlobalRank{1});
    EXPECT_EQ(news.failure.code == ErrorCode::stopped, news.failure.message == kStopText);
    lines_.push_back(how + news.failure.message);
  }

  Lines lines_;
  std::atomic<int> wakes_ = 0;
  std::unique_ptr<WatchStop> stop_;  // The last: its destructor joins the thread that asks.
};

// A listener may end this process at once, and the others must know why.
TEST(WatchStop, ReportsToOtherRanksBeforeThisProcess) {
  StopOfRankOne stop;
  stop->signal().pretend();
  stop->on_extra(at_ms(1000));
  EXPECT_EQ(stop.lines(), Lines{"told: " + kStopText});
  stop->on_extra(at_ms(1099));
  EXPECT_EQ(stop.lines().size(), 1U) << "a millisecond of patience is left";
  stop->on_extra(at_ms(1100));
  stop->on_extra(at_ms(1200));
  EXPECT_EQ(stop.lines(),
            (Lines{"told: " + kStopText, "told: " + kStopText, "published: " + kStopText}));
  EXPECT_EQ(stop->deadline(), kNever);
}

TEST(WatchStop, ReportsAtOnceIfARankDies) {
  StopOfRankOne stop;
  stop->signal().pretend();
  stop->on_extra(at_ms(1000));
  EXPECT_EQ(stop.lines().size(), 1U);
  stop->on_death(at_ms(1001));
  EXPECT_EQ(stop.lines().back(), "published: " + kStopText);
}

TEST(WatchStop, ReportsTheReasonOfARankThatEnded) {
  StopOfRankOne stop;
  stop->signal().pretend();
  stop->on_expected_death(at_ms(1000), {ErrorCode::peer_failed, "node 1 was lost"});
  EXPECT_EQ(stop.lines().back(), "published: node 1 was lost");
}

TEST(WatchStop, AnExpectedDeathWithoutSigtermReportsNothing) {
  StopOfRankOne stop;
  stop->on_expected_death(at_ms(1000), {ErrorCode::peer_failed, "node 1 was lost"});
  stop->on_extra(at_ms(5000));
  EXPECT_EQ(stop.lines(), Lines{});
}

TEST(WatchStop, AgreeDoesNotEndCalls) {
  StopOfRankOne stop({}, StopPolicy::agree);
  stop->signal().pretend();
  stop->on_extra(at_ms(1000));
  stop->on_extra(at_ms(5000));
  EXPECT_EQ(stop.lines(), Lines{"told: " + kStopText}) << "the others know why this rank ends";
  EXPECT_TRUE(stop->signal().came());
}

TEST(WatchStop, ADeadlineThatOverflowsMeansNever) {
  StopOfRankOne stop;
  stop->signal().pretend();
  stop->on_extra(kNever - WatchStop::kPatience / 2);
  EXPECT_EQ(stop->deadline(), kNever);
  stop->on_death(kNever);
  EXPECT_EQ(stop.lines().back(), "published: " + kStopText);
}

TEST(WatchStop, DoesNotAskTheLauncherIfADeathIsKnown) {
  std::atomic<int> asked = 0;
  {
    StopOfRankOne stop([&]() -> std::optional<Failure> {
      ++asked;
      return std::nullopt;
    });
    stop->on_death(at_ms(1000));
    EXPECT_EQ(stop.lines(), Lines{}) << "no rank was told to stop";
    stop->signal().pretend();
    stop->on_extra(at_ms(2000));
    EXPECT_EQ(stop.lines().back(), "published: " + kStopText);
  }
  EXPECT_EQ(asked, 0);
}

TEST(WatchStop, WaitsForALauncherWithoutAReasonOnlyForItsPatience) {
  std::promise<void> asked;
  StopOfRankOne stop([&]() -> std::optional<Failure> {
    asked.set_value();
    return std::nullopt;
  });
  stop->signal().pretend();
  stop->on_extra(at_ms(1000));
  asked.get_future().wait();
  stop->on_extra(at_ms(1050));
  EXPECT_EQ(stop.lines().size(), 1U);
  stop->on_extra(stop->deadline());
  EXPECT_EQ(stop.lines().back(), "published: " + kStopText);
}

TEST(WatchStop, ReportsTheFirstReasonOnce) {
  StopOfRankOne stop([] { return Failure{ErrorCode::peer_failed, "node7 was lost", {{3}}}; });
  stop->signal().pretend();
  stop->on_extra(at_ms(1000));
  stop.wait_for_a_wake();
  stop->on_expected_death(at_ms(1001), {ErrorCode::peer_failed, "rank 5 died", {{5}}});
  stop->on_extra(at_ms(5000));
  stop->on_death(at_ms(6000));
  EXPECT_EQ(stop.lines(),
            (Lines{"told: " + kStopText, "told: node7 was lost", "published: node7 was lost"}));
}

// A rank that ended after an abort, or was told to stop too, adds no reason for the stop.
TEST(WatchStop, AnAbortOrStopOfAnotherRankIsNoReason) {
  for (const ErrorCode code : {ErrorCode::aborted, ErrorCode::stopped}) {
    StopOfRankOne stop;
    stop->signal().pretend();
    stop->on_expected_death(at_ms(1000), {code, "rank 5 ended", {{5}}});
    EXPECT_EQ(stop.lines().back(), "published: " + kStopText);
  }
}

}  // namespace
}  // namespace muster::worker
