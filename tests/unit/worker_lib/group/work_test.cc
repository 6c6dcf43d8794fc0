#include "muster/work.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker_lib/c_abi/c_abi.h"
#include "worker_lib/fork_guard.h"
#include "worker_lib/group/group_queue.h"
#include "worker_lib/group/group_work.h"
#include "worker_lib/work_state.h"

namespace muster::worker {
namespace {

using namespace std::chrono_literals;

std::shared_ptr<HostWork> begun(const char* operation = "all_reduce") {
  auto state = std::make_shared<HostWork>();
  state->operation = operation;
  state->group = "world";
  return state;
}

TEST(Work, AnEmptyHandleIsNotValid) {
  EXPECT_FALSE(Work().valid());
  EXPECT_TRUE(Work(c_abi::handle_of(begun())).valid());
}

TEST(Work, AnEmptyHandleSaysWhereToGetOne) {
  Work work;
  const auto refused = [](const auto& call) {
    try {
      call();
    } catch (const DistributedError& error) {
      return std::string(name_of(error.code())) + ": " + error.what();
    }
    return std::string("no error");
  };
  const std::string rest =
      ": empty Work: get one from an operation that is begun, as all_reduce_async() or isend()";
  EXPECT_EQ(refused([&] { work.wait(); }), "invalid_argument: wait" + rest);
  EXPECT_EQ(refused([&] { work.wait(0ms); }), "invalid_argument: wait" + rest);
  EXPECT_EQ(refused([&] { work.synchronize(); }), "invalid_argument: synchronize" + rest);
  EXPECT_EQ(refused([&] { work.is_completed(); }), "invalid_argument: is_completed" + rest);
  EXPECT_EQ(refused([&] { static_cast<void>(work.error()); }), "invalid_argument: error" + rest);
  EXPECT_EQ(refused([&] { work.source(); }), "invalid_argument: source" + rest);
}

TEST(Work, IsUnderWayUntilItCompletes) {
  const auto state = begun();
  Work work(c_abi::handle_of(state));
  EXPECT_FALSE(work.is_completed());
  EXPECT_EQ(work.error(), std::nullopt);
  EXPECT_FALSE(work.wait(0ms));
  EXPECT_FALSE(work.wait(-5ms));
  EXPECT_FALSE(work.wait(1ms));
  state->complete(Done{}, 3);
  EXPECT_TRUE(work.is_completed());
  EXPECT_TRUE(work.wait(0ms));
  work.wait();
  work.synchronize();
  EXPECT_EQ(work.source(), GroupRank{3});
  EXPECT_EQ(work.error(), std::nullopt);
}

// What the exception destroys next may be the operation's buffer.
TEST(Work, AnExceptionThatDestroysItWaitsForTheOperation) {
  const auto state = begun();
  std::atomic<bool> completes{false}, is_caught{false};
  std::thread completer([&] {
    while (!state->is_awaited() && !is_caught)
      std::this_thread::yield();
    completes = !is_caught;
    state->complete(Done{});
  });
  try {
    const Work work(c_abi::handle_of(state));
    throw std::runtime_error("the program's own");
  } catch (const std::runtime_error&) {
    is_caught = true;
  }
  completer.join();
  EXPECT_TRUE(completes);
}

TEST(Work, AnExceptionThatDestroysItAbortsTheGroupOfAnOperationThatDoesNotEnd) {
  const auto state = std::make_shared<GroupState>("world", GlobalRank{1}, false);
  std::promise<void> failed_group;
  state->attach([&](const Failure&, GroupState::Source) { failed_group.set_value(); });
  GroupQueue queue(state);
  bool has_ended = false;
  const GroupQueue::Task task = [&]() -> Outcome<> {
    failed_group.get_future().wait_for(30s);
    has_ended = true;
    return tl::unexpected(*state->failure());
  };
  try {
    const Work work(c_abi::handle_of(queue.push(task, "all_reduce", Deadline::max())));
    throw std::runtime_error("the program's own");
  } catch (const std::runtime_error&) {
    EXPECT_TRUE(has_ended);
  }
  ASSERT_TRUE(state->failed());
  EXPECT_EQ(state->failure()->code, ErrorCode::aborted);
  EXPECT_EQ(state->failure()->message,
            "rank 1 aborted the group: an exception ended the scope of its all_reduce in flight");
}

TEST(Work, OnesMadeAndDroppedWhileAnExceptionIsOnItsWayAreNotAwaited) {
  struct Cleanup {
    ~Cleanup() { const Work dropped(c_abi::handle_of(begun())); }  // Never completes.
  };
  EXPECT_THROW(([] {
                 const Cleanup cleanup;
                 throw std::runtime_error("the program's own");
               }()),
               std::runtime_error);
}

TEST(Work, EveryWaitThrowsTheFailure) {
  const auto state = begun("gather");
  Work work(c_abi::handle_of(state));
  state->complete(failed(ErrorCode::peer_failed, "gather 3 of group world: rank 2 died", {{2}}));
  const auto expect_thrown = [&](auto call) {
    try {
      call();
      FAIL() << "nothing was thrown";
    } catch (const DistributedError& error) {
      EXPECT_STREQ(error.what(), "gather 3 of group world: rank 2 died");
      EXPECT_EQ(error.code(), ErrorCode::peer_failed);
      EXPECT_EQ(error.operation(), "gather");
      EXPECT_EQ(error.group(), "world");
      EXPECT_EQ(error.failed_ranks(), std::vector<GlobalRank>{{2}});
    }
  };
  EXPECT_TRUE(work.is_completed());
  expect_thrown([&] { work.wait(); });
  expect_thrown([&] { work.wait(1h); });
  expect_thrown([&] { work.wait(std::chrono::milliseconds::max()); });
  expect_thrown([&] { work.synchronize(); });
  expect_thrown([&] { throw *work.error(); });
}

TEST(Work, SeveralThreadsMayWaitForCopies) {
  const auto state = begun();
  std::vector<std::thread> waiters;
  std::atomic<int> woken{0};
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&woken, work = Work(c_abi::handle_of(state)), i]() mutable {
      if (i % 2 == 0) {
        work.wait();
      } else {
        EXPECT_TRUE(work.wait(10min));
      }
      ++woken;
    });
  }
  state->complete(Done{});
  for (std::thread& waiter : waiters)
    waiter.join();
  EXPECT_EQ(woken, 4);
}

TEST(Work, AFailedWorkOfABackendFailsItsGroupOnce) {
  const auto state = std::make_shared<GroupState>("world", GlobalRank{0}, false);
  int failures = 0;
  state->attach([&](const Failure&, GroupState::Source) { ++failures; });
  const auto inner = begun();
  Work work(c_abi::handle_of(observe(inner, state, "recv", "recv from rank 1 of group world")));
  EXPECT_EQ(work.error(), std::nullopt);
  EXPECT_TRUE(state->usable());
  inner->complete(failed(ErrorCode::timeout, "no message within 3 s", {{1}}));
  ASSERT_TRUE(work.error().has_value());
  const std::string text = "recv from rank 1 of group world: no message within 3 s";
  EXPECT_EQ(work.error()->what(), text);
  EXPECT_THROW(work.wait(), DistributedError);
  EXPECT_EQ(failures, 1);
  EXPECT_EQ(state->refusal().message,
            "the group has failed: recv from rank 1: no message within 3 s");
  EXPECT_EQ(work.error()->what(), text);
}

TEST(Work, AForkedChildCanNeitherWaitNorAsk) {
  arm_fork_guard();
  const auto state = begun();
  Work work(c_abi::handle_of(state));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto is_refused = [](const auto& call) {
      try {
        call();
      } catch (const DistributedError& error) {
        return error.code() == ErrorCode::forked && error.operation() == "all_reduce";
      }
      return false;
    };
    const bool are_refused =
        is_refused([&] { work.wait(); }) && is_refused([&] { work.wait(0ms); }) &&
        is_refused([&] { work.synchronize(); }) && is_refused([&] { work.is_completed(); }) &&
        is_refused([&] { static_cast<void>(work.error()); }) && is_refused([&] { work.source(); });
    ::_exit(are_refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(GroupQueue, RunsItsTasksInOrderAndIsIdleOtherwise) {
  const auto state = std::make_shared<GroupState>("world", GlobalRank{0}, false);
  GroupQueue queue(state);
  EXPECT_TRUE(queue.idle());
  queue.wait_idle();
  std::vector<int> order;
  std::promise<void> gate;
  auto opened = gate.get_future().share();
  std::vector<std::shared_ptr<QueuedWork>> works;
  for (int i = 0; i < 10; ++i) {
    works.push_back(queue.push(
        [&order, opened, i]() -> Outcome<> {
          opened.wait();
          order.push_back(i);
          return Done{};
        },
        "barrier", Deadline::max()));
  }
  EXPECT_FALSE(queue.idle());
  EXPECT_EQ(works.back()->outcome(), std::nullopt);
  gate.set_value();
  for (const auto& work : works)
    EXPECT_TRUE(work->wait(Deadline::max())->has_value());
  queue.wait_idle();
  EXPECT_TRUE(queue.idle());
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

// A thread that waited for one operation may call the next at once; the queue must be empty by
// then, so that the call stays on the caller's thread.
TEST(GroupQueue, IsIdleOnceTheLastWorkIsComplete) {
  const auto state = std::make_shared<GroupState>("world", GlobalRank{0}, false);
  GroupQueue queue(state);
  for (int i = 0; i < 1000; ++i) {
    const auto work = queue.push([]() -> Outcome<> { return Done{}; }, "barrier", Deadline::max());
    work->wait(Deadline::max());
    ASSERT_TRUE(queue.idle()) << i;
  }
}

TEST(GroupState, KeepsTheFirstFailureAndReportsItOnce) {
  GroupState state("pair", GlobalRank{1}, false);
  std::vector<std::string> told;
  state.attach(
      [&](const Failure& failure, GroupState::Source) { told.push_back(failure.message); });
  EXPECT_TRUE(state.usable());
  EXPECT_TRUE(state.fail({ErrorCode::timeout, "a", {}}, GroupState::Source::own, "barrier 1"));
  EXPECT_FALSE(state.fail({ErrorCode::aborted, "b", {}}, GroupState::Source::from_watch));
  EXPECT_EQ(told, std::vector<std::string>{"a"});
  EXPECT_TRUE(state.failed());
  EXPECT_EQ(state.settle({ErrorCode::backend, "c", {}}, "send of group pair").message,
            "send of group pair: the group has failed: barrier 1: a");
  state.close();
  EXPECT_FALSE(state.failed());
  EXPECT_EQ(state.refusal().code, ErrorCode::timeout);
}

TEST(GroupState, AnInterruptedSearchUsesTheReportOfTheOtherMember) {
  Failure suspicion{ErrorCode::timeout, "rank 3 did not come", {GlobalRank{3}}};
  suspicion.is_suspicion = true;
  const Failure told{ErrorCode::timeout, "rank 1 gave up: rank 3 is in barrier 6", {GlobalRank{3}}};
  for (const bool finds_more : {false, true}) {
    GroupState state("world", GlobalRank{0}, false);
    state.name_stragglers_with(
        [&](Failure found, const GroupState::Call&, const std::function<bool()>& over) {
          state.fail(told, GroupState::Source::from_member);
          EXPECT_TRUE(over());
          if (finds_more) found.message = "rank 3 is in barrier 6";
          return found;
        });
    EXPECT_EQ(state.settle(suspicion, "barrier 1").message,
              finds_more ? "barrier 1: rank 3 is in barrier 6"
                         : "barrier 1: rank 1 gave up: rank 3 is in barrier 6");
  }
}

TEST(GroupState, ARefusedArgumentDoesNotFailTheGroup) {
  GroupState state("pair", GlobalRank{1}, false);
  EXPECT_EQ(state.settle({ErrorCode::invalid_argument, "cuda:9", {}}, "send of group pair"),
            (Failure{ErrorCode::invalid_argument, "send of group pair: cuda:9", {}}));
  EXPECT_TRUE(state.usable());
}

TEST(GroupState, ALocalFailureReplacesAnothersReportOfTheSame) {
  GroupState state("pair", GlobalRank{1}, false);
  state.fail({ErrorCode::timeout, "rank 1 gave up on the group: late", {}},
             GroupState::Source::from_member);
  EXPECT_EQ(state.settle({ErrorCode::timeout, "late", {}}, "barrier 2 of group pair").message,
            "barrier 2 of group pair: late");
  EXPECT_EQ(state.refusal().message, "the group has failed: barrier 2: late");
  EXPECT_EQ(state.failure()->known_ns, state.refusal().known_ns);
  // Another kind of failure, which follows from the first, does not replace it.
  EXPECT_EQ(state.settle({ErrorCode::backend, "broken", {}}, "send of group pair").message,
            "send of group pair: the group has failed: barrier 2: late");
}

TEST(GroupState, TheFirstReportDecidesTheOrigin) {
  GroupState state("pair", GlobalRank{1}, false);
  state.fail({ErrorCode::timeout, "rank 0 gave up on the group: rank 3 is stopped", {{3}}},
             GroupState::Source::from_member);
  const Failure said =
      state.settle({ErrorCode::timeout, "rank 2 did not arrive", {{2}}}, "barrier 2 of group pair");
  EXPECT_EQ(said.message,
            "barrier 2 of group pair: rank 0 gave up on the group: rank 3 is stopped");
  EXPECT_EQ(said.ranks, std::vector<GlobalRank>{{3}});
}

TEST(GroupState, ResolvesASuspicionBeforeReportingIt) {
  GroupState state("pair", GlobalRank{1}, false);
  std::vector<std::string> told;
  state.attach(
      [&](const Failure& failure, GroupState::Source) { told.push_back(failure.message); });
  state.name_stragglers_with([&](const Failure& suspected, const GroupState::Call& call,
                                 const std::function<bool()>& over) {
    EXPECT_TRUE(suspected.is_suspicion && told.empty() && !over());
    EXPECT_EQ(call.number, 2U);
    return Failure{ErrorCode::timeout, "rank 3 is stopped", {{3}}};
  });
  Failure late{ErrorCode::timeout, "rank 2 did not arrive", {{2}}};
  late.is_suspicion = true;
  const Failure said = state.settle(late, "barrier 2 of group pair", {.number = 2});
  EXPECT_EQ(said.message, "barrier 2 of group pair: rank 3 is stopped");
  EXPECT_EQ(told, std::vector<std::string>{"rank 3 is stopped"});
  EXPECT_FALSE(said.is_suspicion);
  EXPECT_NE(said.known_ns, 0);
  EXPECT_EQ(said.known_ns, state.refusal().known_ns) << "the same failure, reported again";
}

TEST(GroupState, BlamesOthersForAClosedConnectionOnlyIfWatched) {
  const Failure closed{ErrorCode::peer_failed, "rank 2 closed its connection", {{2}}};
  for (const bool watched : {false, true}) {
    GroupState state("pair", GlobalRank{1}, watched);
    state.name_stragglers_with(
        [](const Failure&, const GroupState::Call&, const std::function<bool()>&) {
          return Failure{ErrorCode::peer_failed, "rank 0 is stopped", {{0}}};
        });
    const Failure said = state.settle(closed, "barrier 2 of group pair", {.number = 2});
    EXPECT_EQ(said.message, watched ? "barrier 2 of group pair: rank 0 is stopped"
                                    : "barrier 2 of group pair: rank 2 closed its connection");
  }
}

TEST(GroupState, TheOriginOfASystemErrorIsThisRank) {
  GroupState state("pair", GlobalRank{1}, false);
  EXPECT_EQ(state.settle({ErrorCode::system, "no memory"}, "barrier 1 of group pair").ranks,
            std::vector<GlobalRank>{{1}});
}

}  // namespace
}  // namespace muster::worker
