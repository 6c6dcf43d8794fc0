#include "worker_lib/group/group_queue.h"

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/worker_lib/no_threads.h"

namespace muster::worker {
namespace {

// A queue whose first operation lasts until the gate is opened.
class QueuedBehindAnother : public testing::Test {
 protected:
  QueuedBehindAnother() {
    front_ = queue_.push(
        [this]() -> Outcome<> {
          running_.set_value();
          gate_.get_future().wait();
          return Done{};
        },
        "all_reduce", Deadline::max());
    running_.get_future().wait();
  }
  std::shared_ptr<QueuedWork> push(Outcome<> outcome, Deadline deadline) {
    return queue_.push([outcome] { return outcome; }, "barrier", deadline);
  }

  std::promise<void> running_;
  std::promise<void> gate_;
  const std::shared_ptr<GroupState> state_ =
      std::make_shared<GroupState>("world", GlobalRank{3}, false);
  GroupQueue queue_{state_};
  std::shared_ptr<QueuedWork> front_;
};

TEST_F(QueuedBehindAnother, AWaitThatEndsBeforeTheDeadlineFailsNothing) {
  const auto second = push(Done{}, Deadline::max());
  EXPECT_EQ(second->wait(Deadline::min()), std::nullopt);
  EXPECT_EQ(second->outcome(), std::nullopt);
  EXPECT_TRUE(state_->usable());
  gate_.set_value();
  EXPECT_TRUE(second->wait(Deadline::max())->has_value());
}

// The failure also ends the operation in front: here it opens the gate.
TEST_F(QueuedBehindAnother, AnOperationThatExpiresInTheQueueFailsTheGroup) {
  state_->attach([this](const Failure&, GroupState::Source) { gate_.set_value(); });
  const auto second = push(failed(ErrorCode::backend, "the group has ended"), Deadline::min());
  const std::optional<Outcome<>> outcome = second->wait(Deadline::max());
  ASSERT_TRUE(outcome && !*outcome);
  EXPECT_EQ(outcome->error(),
            (Failure{ErrorCode::timeout,
                     "barrier of group world: its timeout expired while earlier operations were in "
                     "progress; give it a longer timeout, or wait for those first"}));
  EXPECT_FALSE(outcome->error().is_suspicion);
  EXPECT_TRUE(state_->failed());
  queue_.wait_idle();
  EXPECT_EQ(second->outcome()->error(), outcome->error());
}

TEST_F(QueuedBehindAnother, AnExpiredOperationNamesWhatBlocksTheQueue) {
  state_->attach([this](const Failure&, GroupState::Source) { gate_.set_value(); });
  state_->name_stragglers_with(
      [](const Failure&, const GroupState::Call&, const std::function<bool()>&) {
        return Failure{ErrorCode::timeout, "rank 2 is stopped", {{2}}};
      });
  const auto second = push(failed(ErrorCode::backend, "the group has ended"), Deadline::min());
  EXPECT_EQ(second->wait(Deadline::max())->error(),
            (Failure{ErrorCode::timeout,
                     "barrier of group world: its timeout expired while earlier operations were in "
                     "progress: rank 2 is stopped",
                     {{2}}}));
}

TEST_F(QueuedBehindAnother, AThreadThatWaitsForAnyOperationMakesTheQueueAwaited) {
  EXPECT_TRUE(queue_.is_performing());
  EXPECT_FALSE(queue_.is_awaited());
  const auto second = push(Done{}, Deadline::max());
  EXPECT_FALSE(queue_.is_awaited());
  std::thread waiting([&] { second->wait(Deadline::max()); });
  while (!queue_.is_awaited())
    std::this_thread::yield();
  gate_.set_value();
  waiting.join();
  while (queue_.is_performing())
    std::this_thread::yield();
  EXPECT_FALSE(queue_.is_awaited());
  EXPECT_EQ(second->operation, "barrier");
  EXPECT_EQ(second->group, "world");
}

TEST(QueuedWork, CompletesAndFailsItsGroupIfNoThreadStarts) {
  const auto state = std::make_shared<GroupState>("world", GlobalRank{3}, false);
  GroupQueue queue(state);
  bool performed = false;
  std::shared_ptr<QueuedWork> work;
  {
    const NoThreads none;
    const auto perform = [&]() -> Outcome<> {
      performed = true;
      return Done{};
    };
    work = queue.push(perform, "barrier", Deadline::max());
  }
  const std::optional<Outcome<>> outcome = work->outcome();
  ASSERT_TRUE(outcome && !*outcome);
  EXPECT_FALSE(performed);
  EXPECT_EQ(outcome->error().code, ErrorCode::system);
  EXPECT_TRUE(
      outcome->error().message.starts_with("barrier of group world: starting a thread failed: "))
      << outcome->error().message;
  EXPECT_EQ(outcome->error().ranks, std::vector<GlobalRank>{{3}}) << "this rank is the origin";
  EXPECT_TRUE(state->failed());
  EXPECT_TRUE(queue.idle());
}

}  // namespace
}  // namespace muster::worker
