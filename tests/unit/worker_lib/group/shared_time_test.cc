#include "worker_lib/group/shared_time.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/worker_lib/group/fake_backend.h"

namespace muster::worker::group_test {
namespace {

TEST(SharedTime, IsTheTimeoutOfTheCallOrOfTheGroup) {
  FakeJob job(1);
  const Group& group = *job[0].group;
  EXPECT_LE(SharedTime(group, {}).left().timeout, group.timeout());
  EXPECT_LE(SharedTime(group, {.timeout = 5s}).left().timeout, 5s);
  EXPECT_GT(SharedTime(group, {.timeout = 10h}).left().timeout, 1h) << "longer than the group's";
}

TEST(SharedTime, EachOperationGetsTheTimeThatIsLeft) {
  FakeJob job(1);
  const SharedTime time(*job[0].group, {.timeout = 1h});
  const auto first = time.left().timeout;
  while (time.left().timeout == first)
    std::this_thread::yield();
  EXPECT_LT(time.left().timeout, first);
}

TEST(SharedTime, IsZeroOnceItIsOver) {
  FakeJob job(1);
  EXPECT_EQ(SharedTime(*job[0].group, {.timeout = 0ms}).left().timeout, 0ms);
  EXPECT_EQ(SharedTime(*job[0].group, {.timeout = -5ms}).left().timeout, 0ms);
}

}  // namespace
}  // namespace muster::worker::group_test
