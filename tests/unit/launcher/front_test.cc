#include "launcher/front.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace muster {
namespace {

const std::vector<int> kDefaultStops = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

TEST(Forwarding, EverySignalIsDecided) {
  std::vector<int> forwarded;
  for (int signal = 1; signal < SIGRTMIN; ++signal) {
    if (is_forwardable(signal, kDefaultStops)) forwarded.push_back(signal);
  }
  // 32 and 33 belong to the thread library (nptl(7)) and are never seen.
  const std::vector<int> expected = {SIGUSR1,   SIGUSR2, SIGALRM, SIGSTKFLT, SIGXCPU, SIGXFSZ,
                                     SIGVTALRM, SIGPROF, SIGIO,   SIGPWR,    32,      33};
  EXPECT_EQ(forwarded, expected);
  EXPECT_TRUE(is_forwardable(SIGRTMIN, kDefaultStops));
  EXPECT_TRUE(is_forwardable(SIGRTMAX, kDefaultStops));
}

TEST(Forwarding, AListedSignalEndsTheJobInstead) {
  EXPECT_FALSE(is_forwardable(SIGUSR1, {SIGUSR1}));
  EXPECT_TRUE(is_forwardable(SIGUSR2, {SIGUSR1}));
}

TEST(Forwarding, TheUsualStopSignalsAreNeverForwardedEvenWhenUnlisted) {
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT})
    EXPECT_FALSE(is_forwardable(signal, {}));
}

}  // namespace
}  // namespace muster
