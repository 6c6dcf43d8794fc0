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

// Records what it reports to the other ranks and what it publishes here, in order.
class StopOfRankOne {
 public:
  explicit StopOfRankOne(std::function<std::optional<Failure>()> ask_cause = {}) {
    Outcome<std::unique_ptr<StopSignal>> signal = StopSignal::install(StopPolicy::ignore);
    if (!signal) std::abort();
    stop_ = std::make_unique<WatchStop>(
        WatchStop::Options{GlobalRank{1}, StopPolicy::end_calls, std::move(ask_cause),
                           [this] { ++wakes_; },
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
    lines_.push_back(how + news.failure.message);
  }

  Lines lines_;
  std::atomic<int> wakes_ = 0;
  std::unique_ptr<WatchStop> stop_;  // The last: its destructor joins the thread that asks.
};

const std::string kStopText = "the job was told to end (SIGTERM)";

// A listener may end this process at once, and the others must know why.
TEST(WatchStopOrder, ReportsToOtherRanksBeforeThisProcess) {
  StopOfRankOne stop;
  stop->signal().pretend();
  stop->on_extra(at_ms(1000));
  EXPECT_EQ(stop.lines(), Lines{"told: " + kStopText});
  stop->on_extra(at_ms(1099));
  EXPECT_EQ(stop.lines().size(), 1U) << "a millisecond of patience is left";
  stop->on_extra(at_ms(1100));
  EXPECT_EQ(stop.lines(),
            (Lines{"told: " + kStopText, "told: " + kStopText, "published: " + kStopText}));
}

TEST(WatchStopOrder, ADeadlineThatOverflowsMeansNever) {
  StopOfRankOne stop;
  stop->signal().pretend();
  stop->on_extra(kNever - WatchStop::kPatience / 2);
  EXPECT_EQ(stop->deadline(), kNever);
  stop->on_death(kNever);
  EXPECT_EQ(stop.lines().back(), "published: " + kStopText);
}

TEST(WatchStopOrder, DoesNotAskTheLauncherIfADeathIsKnown) {
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

TEST(WatchStopOrder, WaitsForALauncherWithoutAReasonOnlyForItsPatience) {
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

TEST(WatchStopOrder, ReportsTheFirstReasonOnce) {
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

// A rank that ended after an abort adds no reason for the stop.
TEST(WatchStopOrder, AnAbortOfAnotherRankIsNoReason) {
  StopOfRankOne stop;
  stop->signal().pretend();
  stop->on_expected_death(at_ms(1000), {ErrorCode::aborted, "rank 5 called abort()", {{5}}});
  EXPECT_EQ(stop.lines().back(), "published: " + kStopText);
}

}  // namespace
}  // namespace muster::worker
