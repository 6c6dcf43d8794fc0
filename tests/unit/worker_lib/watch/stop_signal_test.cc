// SIGTERM ends processes, so each promise about it is tested in a child: death tests start this
// program anew for each.
#include "worker_lib/watch/stop_signal.h"

#include <chrono>
#include <csignal>
#include <cstdlib>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/wait_for.h"
#include "worker_lib/watch/watch_stop.h"

namespace muster::worker {
namespace {

using namespace std::chrono_literals;

class StopSignalTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

std::unique_ptr<StopSignal> installed(StopPolicy policy) {
  Outcome<std::unique_ptr<StopSignal>> signal = StopSignal::install(policy);
  if (!signal) std::abort();
  return std::move(*signal);
}

// True if the signal is seen within 20 s.
bool hears(const StopSignal& signal) {
  pollfd ready{signal.event_fd(), POLLIN, 0};
  int result;
  do {
    result = poll(&ready, 1, 20'000);
  } while (result < 0 && errno == EINTR);
  return result == 1 && signal.came();
}

bool sigterm_is_default() {
  struct sigaction now{};
  sigaction(SIGTERM, nullptr, &now);
  return now.sa_handler == SIG_DFL;
}

[[noreturn]] void exit_if(bool as_promised) {
  std::_Exit(as_promised ? 0 : 1);
}

TEST_F(StopSignalTest, EndCallsLetsTheProcessLiveForASecondAndNoLonger) {
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EXIT(
      {
        const auto signal = installed(StopPolicy::end_calls);
        std::raise(SIGTERM);
        if (!hears(*signal)) std::_Exit(1);
        for (;;)
          pause();
      },
      testing::KilledBySignal(SIGTERM), "");
  EXPECT_GE(std::chrono::steady_clock::now() - before, 900ms);
}

TEST_F(StopSignalTest, EndCallsEndsTheProcessAfterTheLibraryIsGone) {
  EXPECT_EXIT(
      {
        auto signal = installed(StopPolicy::end_calls);
        std::raise(SIGTERM);
        signal.reset();
        for (;;)
          pause();
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST_F(StopSignalTest, AgreeLetsTheProcessGoOn) {
  EXPECT_EXIT(
      {
        const auto signal = installed(StopPolicy::agree);
        std::raise(SIGTERM);
        std::raise(SIGTERM);
        const bool heard = hears(*signal);
        test::pause_for(1500ms, "longer than what end_calls leaves");
        exit_if(heard);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(StopSignalTest, AHandlerOfTheProgramIsLeftAlone) {
  EXPECT_EXIT(
      {
        std::signal(SIGTERM, [](int) { std::_Exit(7); });
        const auto signal = installed(StopPolicy::end_calls);
        if (signal->is_installed()) std::_Exit(1);
        std::raise(SIGTERM);
        std::_Exit(2);
      },
      testing::ExitedWithCode(7), "");
}

TEST_F(StopSignalTest, AnIgnoredSigtermStaysIgnored) {
  EXPECT_EXIT(
      {
        std::signal(SIGTERM, SIG_IGN);
        const auto signal = installed(StopPolicy::end_calls);
        std::raise(SIGTERM);
        exit_if(!signal->is_installed() && !signal->came());
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(StopSignalTest, IgnoreLeavesSigtermAtItsDefault) {
  EXPECT_EXIT(
      {
        const auto signal = installed(StopPolicy::ignore);
        std::raise(SIGTERM);
        std::_Exit(1);
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST_F(StopSignalTest, RestoresTheDefaultOfSigterm) {
  EXPECT_EXIT(
      {
        for (int round = 0; round < 3; ++round) {
          auto signal = installed(StopPolicy::end_calls);
          if (!signal->is_installed() || sigterm_is_default()) std::_Exit(1);
          signal.reset();
          if (!sigterm_is_default()) std::_Exit(2);
        }
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(StopSignalTest, AnEarlierSigtermIsSeenByTheNextInstance) {
  EXPECT_EXIT(
      {
        auto signal = installed(StopPolicy::agree);
        std::raise(SIGTERM);
        signal.reset();
        signal = installed(StopPolicy::agree);
        exit_if(hears(*signal));
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(StopSignalTest, AForkedChildDiesOfSigtermAndItsParentSeesNothing) {
  EXPECT_EXIT(
      {
        const auto signal = installed(StopPolicy::agree);
        const pid_t child = fork();
        if (child == 0) {
          std::raise(SIGTERM);
          std::_Exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        exit_if(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM && !signal->came());
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(StopSignalTest, PretendIsSeenAndEndsNoProcess) {
  EXPECT_EXIT(
      {
        const auto signal = installed(StopPolicy::end_calls);
        signal->pretend();
        const bool heard = hears(*signal);
        test::pause_for(1500ms, "longer than what end_calls leaves");
        exit_if(heard && sigterm_is_default() == false);
      },
      testing::ExitedWithCode(0), "");
}

// ---- when it is reported

struct Said {
  std::vector<Watch::News> news;
  std::vector<Watch::News> told;  // To the other ranks.
  WatchStop::Options options(StopPolicy policy) {
    return {GlobalRank{1},
            policy,
            {},
            [] {},
            [this](const Watch::News& one) { told.push_back(one); },
            [this](const Watch::News& one) { news.push_back(one); }};
  }
};

constexpr Instant kStart = Instant(1h);

std::unique_ptr<StopSignal> pretended() {
  auto signal = installed(StopPolicy::ignore);
  signal->pretend();
  return signal;
}

TEST(WatchStop, ReportsOnceAfterATenthOfASecond) {
  Said said;
  WatchStop stop(said.options(StopPolicy::end_calls), pretended());
  stop.on_extra(kStart);
  EXPECT_TRUE(said.news.empty());
  EXPECT_EQ(said.told.size(), 1U) << "the others know at once";
  EXPECT_EQ(stop.deadline(), kStart + 100ms);
  stop.on_extra(kStart + 100ms);
  stop.on_extra(kStart + 200ms);
  ASSERT_EQ(said.news.size(), 1U);
  EXPECT_EQ(said.news[0], (Watch::News{Watch::News::Kind::stopped,
                                       {1},
                                       {},
                                       {ErrorCode::stopped, "the job was told to end (SIGTERM)"}}));
  EXPECT_EQ(stop.deadline(), kNever);
}

TEST(WatchStop, ReportsAtOnceIfADeathIsKnown) {
  Said before, after;
  WatchStop known(before.options(StopPolicy::end_calls), pretended());
  known.on_death(kStart);
  EXPECT_EQ(before.news.size(), 1U);
  WatchStop later(after.options(StopPolicy::end_calls), pretended());
  later.on_extra(kStart);
  EXPECT_EQ(after.news.size(), 0U);
  later.on_death(kStart + 1ms);
  EXPECT_EQ(after.news.size(), 1U);
}

TEST(WatchStop, ReportsBeforeTheDeathOfARankThatWasStoppedToo) {
  const Failure told{ErrorCode::stopped, "the job was told to end (SIGTERM)"};
  Said said;
  WatchStop stop(said.options(StopPolicy::end_calls), pretended());
  stop.on_extra(kStart);
  stop.on_expected_death(kStart + 1ms, told);
  ASSERT_EQ(said.news.size(), 1U);
  EXPECT_EQ(said.news[0].failure, told);
}

TEST(WatchStop, ReportsTheReasonThatAnEndedRankKnew) {
  const Failure reason{ErrorCode::peer_failed, "node 1 was lost"};
  Said said;
  WatchStop stop(said.options(StopPolicy::end_calls), pretended());
  stop.on_expected_death(kStart, reason);
  ASSERT_EQ(said.news.size(), 1U);
  EXPECT_EQ(said.news[0].failure, reason);
}

TEST(WatchStop, AnExpectedDeathAloneReportsNothing) {
  Said said;
  WatchStop stop(said.options(StopPolicy::end_calls), installed(StopPolicy::ignore));
  stop.on_expected_death(kStart, {ErrorCode::peer_failed, "node 1 was lost"});
  stop.on_extra(kStart + 1h);
  EXPECT_TRUE(said.news.empty());
}

TEST(WatchStop, ADeathWithoutSigtermReportsNothing) {
  Said said;
  WatchStop stop(said.options(StopPolicy::end_calls), installed(StopPolicy::ignore));
  stop.on_death(kStart);
  stop.on_extra(kStart + 1h);
  EXPECT_TRUE(said.news.empty());
}

TEST(WatchStop, AgreeDoesNotEndCalls) {
  Said said;
  WatchStop stop(said.options(StopPolicy::agree), pretended());
  stop.on_extra(kStart);
  stop.on_extra(kStart + 1h);
  EXPECT_TRUE(said.news.empty());
  EXPECT_EQ(said.told.size(), 1U) << "the others will know why this rank ends";
  EXPECT_TRUE(stop.signal().came());
}

TEST(WatchStop, ReportsTheReasonOfTheLauncher) {
  const Failure account{ErrorCode::peer_failed, "node7 was lost", {{3}}};
  Said said;
  std::atomic<int> wakes = 0;
  WatchStop::Options options = said.options(StopPolicy::end_calls);
  options.ask_cause = [&] { return account; };
  options.wake = [&] { ++wakes; };
  WatchStop stop(std::move(options), pretended());
  stop.on_extra(kStart);
  test::wait_for([&] { return wakes > 0; }, "the wake-up");
  stop.on_extra(kStart + 1ms);
  ASSERT_EQ(said.news.size(), 1U);
  EXPECT_EQ(said.news[0].failure, account);
  EXPECT_EQ(said.told.back().failure, account);
}

}  // namespace
}  // namespace muster::worker
