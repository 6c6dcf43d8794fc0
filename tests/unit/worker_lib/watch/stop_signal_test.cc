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

}  // namespace
}  // namespace muster::worker
