#include "rendezvous/store/wake_fan_out.h"

#include <array>
#include <csignal>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace muster {
namespace {

using Result = WakeFanOut::Result;

class SocketPair {
 public:
  SocketPair() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_.data()), 0); }
  SocketPair(const SocketPair&) = delete;
  SocketPair& operator=(const SocketPair&) = delete;
  ~SocketPair() {
    ::close(ends_[0]);
    close_far_end();
  }

  int near() const { return ends_[0]; }
  void close_far_end() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }
  void fill() const {
    const std::array<char, 4096> bytes{};
    while (::send(near(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
    while (::send(near(), bytes.data(), 1, MSG_DONTWAIT) > 0) {
    }
  }
  // Returns the bytes that have arrived.
  std::string heard() const {
    std::array<char, 8192> bytes{};
    const ssize_t n = ::recv(ends_[1], bytes.data(), bytes.size(), MSG_DONTWAIT);
    return n > 0 ? std::string(bytes.data(), static_cast<size_t>(n)) : std::string();
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

std::vector<Result> results(const std::vector<WakeFanOut::Wake>& wakes) {
  std::vector<Result> all;
  for (const WakeFanOut::Wake& wake : wakes)
    all.push_back(wake.result);
  return all;
}

TEST(WakeFanOut, SendsOneByteToEachAndReportsTheResult) {
  SocketPair well, full, gone;
  full.fill();
  gone.close_far_end();
  std::vector<WakeFanOut::Wake> wakes = {{well.near(), 0, Result::broken},
                                         {full.near(), 1, Result::sent},
                                         {gone.near(), 2, Result::sent}};
  WakeFanOut::send(wakes, 'x');
  EXPECT_EQ(results(wakes), (std::vector<Result>{Result::sent, Result::full, Result::broken}));
  EXPECT_EQ(well.heard(), "x");
}

TEST(WakeFanOut, DoesNothingForAnEmptyList) {
  std::vector<WakeFanOut::Wake> wakes;
  WakeFanOut::send(wakes, 'x');
  EXPECT_TRUE(wakes.empty());
}

// Enough for the second thread, with different remainders after whole pieces of work.
TEST(WakeFanOut, SendsEachWakeUpOnce) {
  for (const size_t count :
       {WakeFanOut::kWorthAThread - 1, WakeFanOut::kWorthAThread, size_t{1000}, size_t{1001}}) {
    std::array<SocketPair, 5> pairs;
    std::vector<WakeFanOut::Wake> wakes;
    for (size_t i = 0; i < count; i++)
      wakes.push_back({pairs[i % pairs.size()].near(), 0, Result::broken});
    WakeFanOut::send(wakes, '\0');
    EXPECT_EQ(results(wakes), std::vector<Result>(count, Result::sent));
    for (size_t i = 0; i < pairs.size(); i++)
      EXPECT_EQ(pairs[i].heard(), std::string((count + pairs.size() - 1 - i) / pairs.size(), '\0'));
  }
}

TEST(WakeFanOut, KeepsTheCallersSignalMask) {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGUSR1);
  sigset_t old;
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &mask, &old), 0);
  const SocketPair pair;
  std::vector<WakeFanOut::Wake> wakes(WakeFanOut::kWorthAThread, {pair.near(), 0, Result::broken});
  WakeFanOut::send(wakes, 'x');
  sigset_t now;
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &old, &now), 0);
  EXPECT_EQ(sigismember(&now, SIGUSR1), 1);
  EXPECT_EQ(sigismember(&now, SIGTERM), 0);
  EXPECT_EQ(sigismember(&now, SIGCHLD), 0);
}

}  // namespace
}  // namespace muster
