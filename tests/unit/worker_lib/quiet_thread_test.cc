// Threads of the library: their signals, and the error if none can start.
#include "worker_lib/quiet_thread.h"

#include <csignal>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker_lib/no_threads.h"

namespace muster::worker {
namespace {

using testing::HasSubstr;

bool takes(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, signal) == 0;
}

TEST(QuietThread, BlocksSignalsInItselfAndNotInItsCreator) {
  bool quiet = false;
  Outcome<std::thread> thread = start_quiet_thread([&] { quiet = !takes(SIGTERM); });
  ASSERT_TRUE(thread);
  thread->join();
  EXPECT_TRUE(quiet);
  EXPECT_TRUE(takes(SIGTERM));
}

TEST(QuietThread, ReportsThatNoThreadStartsAndRestoresSignals) {
  const NoThreads none;
  const Outcome<std::thread> thread = start_quiet_thread([] {});
  ASSERT_FALSE(thread);
  EXPECT_EQ(thread.error().code, ErrorCode::system);
  EXPECT_THAT(thread.error().message, HasSubstr("starting a thread failed: "));
  EXPECT_THAT(thread.error().message, HasSubstr("ulimit -"));
  EXPECT_TRUE(takes(SIGTERM));
  EXPECT_THROW(quiet_thread([] {}), std::system_error);
  EXPECT_TRUE(takes(SIGTERM));
}

}  // namespace
}  // namespace muster::worker
