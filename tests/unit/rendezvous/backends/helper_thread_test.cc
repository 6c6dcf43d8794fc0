#include "rendezvous/backends/helper_thread.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "tests/unit/rendezvous/net/socket_harness.h"

namespace muster {
namespace {

class HelperThreadTest : public testing::Test {
 protected:
  void turn(const std::function<bool()>& done, const char* what) { turn_until(loop_, done, what); }
  // Runs a job to its end; its answer is posted, but the loop has not run it yet.
  void run_until_posted(std::function<void()> done) {
    helper_->run([] {}, std::move(done));
    wait_for_thread();
  }
  // Waits until all jobs so far have run.
  void wait_for_thread() {
    const auto over = std::make_shared<std::promise<void>>();
    helper_->run([over] { over->set_value(); }, [] {});
    ASSERT_EQ(over->get_future().wait_for(kLimit), std::future_status::ready);
  }

  boost::asio::io_context loop_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      loop_.get_executor()};
  std::optional<HelperThread> helper_{std::in_place, loop_};
};

TEST_F(HelperThreadTest, WorksOnAnotherThreadAndAnswersOnTheLoop) {
  std::thread::id worked_on;
  std::thread::id answered_on;
  helper_->run([&] { worked_on = std::this_thread::get_id(); },
               [&] { answered_on = std::this_thread::get_id(); });
  EXPECT_EQ(answered_on, std::thread::id());  // Never from inside run().
  turn([&] { return answered_on != std::thread::id(); }, "the answer comes");
  EXPECT_NE(worked_on, std::this_thread::get_id());
  EXPECT_EQ(answered_on, std::this_thread::get_id());
}

TEST_F(HelperThreadTest, RunsJobsOneAtATimeInOrder) {
  std::vector<int> order;  // The sanitizer reports concurrent writes.
  std::vector<int> answers;
  std::atomic<int> running{0};
  bool overlapped = false;
  for (int i = 0; i < 20; ++i) {
    helper_->run(
        [&, i] {
          overlapped |= ++running > 1;
          order.push_back(i);
          --running;
        },
        [&, i] { answers.push_back(i); });
  }
  turn([&] { return answers.size() == 20; }, "all answers come");
  EXPECT_FALSE(overlapped);
  EXPECT_EQ(order, answers);
  EXPECT_TRUE(std::is_sorted(answers.begin(), answers.end()));
}

TEST_F(HelperThreadTest, AllowsAnAnswerToStartTheNextJob) {
  int done = 0;
  std::function<void()> again = [&] {
    if (++done < 5) helper_->run([] {}, again);
  };
  helper_->run([] {}, again);
  turn([&] { return done == 5; }, "the last answer comes");
  EXPECT_EQ(done, 5);
}

TEST_F(HelperThreadTest, DropsAPostedAnswerWhenDestroyed) {
  bool answered = false;
  run_until_posted([&] { answered = true; });
  helper_.reset();
  loop_.poll();
  EXPECT_FALSE(answered);
}

TEST_F(HelperThreadTest, AllowsAnAnswerToDestroyIt) {
  int answers = 0;
  run_until_posted([&] {
    ++answers;
    helper_.reset();
  });
  turn([&] { return answers > 0; }, "the answer comes");
  loop_.poll();
  EXPECT_EQ(answers, 1);
}

// A hung disk must not delay the exit, and its late answer must not reach the loop.
TEST_F(HelperThreadTest, DoesNotWaitForWorkWhenDestroyedAndDropsQueuedJobs) {
  const auto disk = std::make_shared<std::promise<void>>();
  const auto began = std::make_shared<std::promise<void>>();
  const auto over = std::make_shared<std::atomic<bool>>(false);
  const auto second_ran = std::make_shared<std::atomic<bool>>(false);
  const auto owned = std::make_shared<int>(1);
  bool answered = false;
  helper_->run(
      [disk, began, over, owned] {
        began->set_value();
        disk->get_future().wait_for(kLimit);
        *over = true;
      },
      [&answered] { answered = true; });
  helper_->run([second_ran, owned] { *second_ran = true; }, [&answered] { answered = true; });
  ASSERT_EQ(began->get_future().wait_for(kLimit), std::future_status::ready);
  helper_.reset();
  EXPECT_FALSE(*over);
  EXPECT_EQ(owned.use_count(), 2);  // Held by the running job; the queued one is gone.
  disk->set_value();
  while (owned.use_count() > 1)
    std::this_thread::yield();
  loop_.poll();
  EXPECT_TRUE(*over);
  EXPECT_FALSE(*second_ran);
  EXPECT_FALSE(answered);
}

TEST_F(HelperThreadTest, FreesAJobsCapturesBeforeItsAnswer) {
  const auto owned = std::make_shared<int>(1);
  long held = 0;
  helper_->run([owned] {}, [&] { held = owned.use_count(); });
  turn([&] { return held > 0; }, "the answer comes");
  EXPECT_EQ(held, 1);
}

TEST_F(HelperThreadTest, CanBeDestroyedUnused) {
  helper_.reset();
  loop_.poll();
}

}  // namespace
}  // namespace muster
