#include "agent/output/request_queue.h"

#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

namespace muster {

namespace {

UniqueFd new_event() {
  return UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

bool is_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

TEST(RequestQueue, PerformsInOrderAndOnce) {
  RequestQueue queue(new_event());
  std::string log;
  queue.push([&] { log += 'a'; });
  queue.push([&] { log += 'b'; }, 1);
  queue.push([&] { log += 'c'; });
  EXPECT_EQ(queue.perform_all(), 0u);
  EXPECT_EQ(queue.perform_all(), 0u);
  EXPECT_EQ(log, "abc");
}

TEST(RequestQueue, TheDescriptorIsReadableWhileARequestWaits) {
  RequestQueue queue(new_event());
  EXPECT_FALSE(is_readable(queue.event_fd()));
  queue.push([] {});
  EXPECT_TRUE(is_readable(queue.event_fd()));
  queue.perform_all();
  EXPECT_FALSE(is_readable(queue.event_fd()));
}

TEST(RequestQueue, ARequestMayMakeAnother) {
  RequestQueue queue(new_event());
  int done = 0;
  queue.push([&] { queue.push([&] { done++; }); });
  queue.perform_all();
  EXPECT_EQ(done, 0);
  EXPECT_TRUE(is_readable(queue.event_fd()));
  queue.perform_all();
  EXPECT_EQ(done, 1);
}

TEST(RequestQueue, TextIsBoundedAndRefusalsAreCounted) {
  RequestQueue queue(new_event());
  const auto nothing = [] {};
  EXPECT_TRUE(queue.push(nothing, RequestQueue::kTextMax - 1));
  EXPECT_TRUE(queue.push(nothing, 1));
  EXPECT_FALSE(queue.push(nothing, 1));
  EXPECT_FALSE(queue.push(nothing, 1));
  queue.push(nothing);
  EXPECT_EQ(queue.perform_all(), 2u);
  EXPECT_TRUE(queue.push(nothing, RequestQueue::kTextMax));
  EXPECT_EQ(queue.perform_all(), 0u);
}

TEST(RequestQueue, NothingIsLostBetweenThreads) {
  RequestQueue queue(new_event());
  constexpr int kEach = 2000;
  int performed = 0;
  std::vector<std::thread> writers;
  for (int i = 0; i < 3; i++) {
    writers.emplace_back([&] {
      for (int n = 0; n < kEach; n++)
        queue.push([&] { performed++; });
    });
  }
  while (performed < 3 * kEach) {
    pollfd entry{queue.event_fd(), POLLIN, 0};
    ::poll(&entry, 1, -1);
    queue.perform_all();
  }
  for (std::thread& writer : writers)
    writer.join();
  EXPECT_EQ(performed, 3 * kEach);
}

}  // namespace

}  // namespace muster
