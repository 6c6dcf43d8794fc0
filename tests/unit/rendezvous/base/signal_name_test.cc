#include "rendezvous/base/signal_name.h"

#include <csignal>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(SignalName, MatchesTheSystemForEverySignal) {
  for (int signal = 1; signal < 32; ++signal) {
    const char* known = sigabbrev_np(signal);
    // glibc abbreviates SIGIO, its more common name, as POLL.
    const std::string abbreviation = signal == SIGIO ? "IO" : known;
    EXPECT_EQ(signal_name(signal), "SIG" + abbreviation) << signal;
  }
}

TEST(SignalName, CoversRealTimeSignalsAndNumbersWithoutAName) {
  EXPECT_EQ(signal_name(SIGRTMIN), "SIGRTMIN");
  EXPECT_EQ(signal_name(SIGRTMIN + 3), "SIGRTMIN+3");
  EXPECT_EQ(signal_name(SIGRTMAX), "SIGRTMIN+" + std::to_string(SIGRTMAX - SIGRTMIN));
  EXPECT_EQ(signal_name(32), "signal 32");
  EXPECT_EQ(signal_name(77), "signal 77");
  EXPECT_EQ(signal_name(0), "signal 0");
}

}  // namespace
}  // namespace muster
