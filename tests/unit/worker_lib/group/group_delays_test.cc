#include "worker_lib/group/group_delays.h"

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/worker_lib/no_threads.h"
#include "tests/wait_for.h"

namespace muster::worker {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(GroupDelays, ActionsRunInTheOrderInWhichTheyAreDue) {
  std::string order;
  std::promise<void> last;
  GroupDelays delays;
  // Of one thread, so that none of the later ones is due before all are known.
  delays.after(milliseconds(0), [&] {
    delays.after(hours(1), [&] { order += "never"; });
    delays.after(milliseconds(20), [&] {
      order += "c";
      last.set_value();
    });
    delays.after(milliseconds(10), [&] { order += "b"; });
    delays.after(milliseconds(-5), [&] { order += "a"; });
  });
  last.get_future().wait();
  EXPECT_EQ(order, "abc");
}

TEST(GroupDelays, AllRunOnOneThreadThatIsNotTheCallers) {
  std::promise<std::thread::id> first, second;
  GroupDelays delays;
  delays.after(milliseconds(0), [&] { first.set_value(std::this_thread::get_id()); });
  delays.after(milliseconds(0), [&] { second.set_value(std::this_thread::get_id()); });
  const std::thread::id thread = first.get_future().get();
  EXPECT_NE(thread, std::this_thread::get_id());
  EXPECT_EQ(second.get_future().get(), thread);
}

TEST(GroupDelays, WhatIsNotDueIsDroppedAtTheEnd) {
  auto held = std::make_shared<bool>(false);
  {
    GroupDelays delays;
    delays.after(hours(1), [held] { *held = true; });
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_FALSE(*held);
  EXPECT_EQ(held.use_count(), 1);
}

TEST(GroupDelays, AnActionThatRunsIsWaitedForAtTheEnd) {
  bool done = false;
  std::promise<void> begun;
  {
    GroupDelays delays;
    delays.after(milliseconds(0), [&] {
      begun.set_value();
      test::pause_for(milliseconds(1), "the end comes while it runs");
      done = true;
    });
    begun.get_future().wait();
  }
  EXPECT_TRUE(done);
}

TEST(GroupDelays, WithoutAThreadNothingRunsUntilOneCanBeMade) {
  std::promise<void> first, second;
  GroupDelays delays;
  {
    const NoThreads none;
    delays.after(milliseconds(0), [&] { first.set_value(); });
  }
  delays.after(milliseconds(0), [&] { second.set_value(); });
  first.get_future().wait();
  second.get_future().wait();
}

}  // namespace
}  // namespace muster::worker
