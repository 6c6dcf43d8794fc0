// How a group fails: every call reports what happened, to which rank and in which operation, and
// all later calls repeat it.

#include <array>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/worker_lib/group/fake_backend.h"
#include "worker_lib/fork_guard.h"

namespace muster::worker::group_test {
namespace {

using Ranks = std::vector<GlobalRank>;

// Makes rank 0's call on a thread; returns once it is blocked.
template <typename Call>
std::future<std::string> blocked(FakeTable& table, uint64_t number, Call call) {
  auto text = std::async(std::launch::async, [call] { return thrown_by(call); });
  table.wait_inside(number, 1);
  return text;
}

TEST(GroupFailure, ABackendsFailureNamesTheOperationAndStays) {
  FakeJob job(2);
  job.tables().named("world").fail_at(
      2, {ErrorCode::timeout, "rank 1 did not arrive within 3 s", {{1}}});
  job.each([](FakeRank& rank) {
    ProcessGroup world = rank.world();
    world.barrier();
    EXPECT_EQ(world.failure(), std::nullopt);
    Ranks ranks;
    EXPECT_EQ(thrown_by([&] { world.barrier(); }, &ranks),
              "timeout: barrier 2 of group world: rank 1 did not arrive within 3 s");
    EXPECT_EQ(ranks, Ranks{{1}});
    std::vector<float> data(1);
    EXPECT_EQ(thrown_by([&] { world.broadcast(data, GroupRank{0}); }, &ranks),
              "timeout: broadcast of group world: the group has failed: barrier 2: rank 1 did not "
              "arrive within 3 s");
    EXPECT_EQ(ranks, Ranks{{1}});
    EXPECT_TRUE(thrown_by([&] {
                  world.send(data, GroupRank{1 - rank.me});
                }).starts_with("timeout: send of group world: the group has failed: "));
    EXPECT_TRUE(thrown_by([&] {
                  static_cast<void>(world.barrier_async());
                }).starts_with("timeout: barrier of "));
    const auto failure = world.failure();
    ASSERT_TRUE(failure.has_value());
    EXPECT_EQ(failure->code(), ErrorCode::timeout);
    EXPECT_EQ(failure->group(), "world");
    EXPECT_STREQ(failure->what(),
                 "group world: the group has failed: barrier 2: rank 1 did not arrive within 3 s");
  });
}

TEST(GroupFailure, ErrorsHaveOperationAndGroupAsFields) {
  FakeJob job(1);
  try {
    std::vector<float> data(1);
    job[0].world().broadcast(data, GroupRank{7});
    FAIL();
  } catch (const DistributedError& error) {
    EXPECT_EQ(error.operation(), "broadcast");
    EXPECT_EQ(error.group(), "world");
    EXPECT_STREQ(error.what(),
                 "broadcast of group world: root 7 is not in the group, whose one rank is 0");
  }
}

TEST(GroupFailure, AnUnsoundCallDoesNotFailTheGroup) {
  FakeJob job(2);
  job.each([](FakeRank& rank) {
    ProcessGroup world = rank.world();
    std::vector<float> in(2);
    std::vector<float> out(3);
    EXPECT_EQ(thrown_by([&] { world.all_reduce(in, out); }),
              "invalid_argument: all_reduce of group world: out has 3 elements where in has 2");
    EXPECT_EQ(thrown_by([&] { static_cast<void>(world.all_reduce_async(in, out)); }),
              "invalid_argument: all_reduce of group world: out has 3 elements where in has 2");
    EXPECT_EQ(thrown_by([&] { world.send(in, GroupRank{5}); }),
              "invalid_argument: send of group world: peer 5 is not in the group, whose ranks are "
              "0 to 1");
    EXPECT_EQ(thrown_by([&] { world.send(in, GroupRank{1 - rank.me}, 1001); }),
              "invalid_argument: send of group world: tags end at 1000 here");
    EXPECT_EQ(thrown_by([&] { world.recv(in, GroupRank{-1}); }),
              "invalid_argument: recv of group world: the peer is below 0; recv_any() receives "
              "from any rank");
    EXPECT_EQ(world.failure(), std::nullopt);
    world.barrier();
  });
}

TEST(GroupFailure, ADeathEndsABlockedCallOnEveryRankThatWaits) {
  FakeJob job(3);
  const auto died = [&] {
    job.tables().named("world").wait_inside(1, 2);
    job.watch().died(2);
  };
  std::thread news(died);
  job.each([](FakeRank& rank) {
    if (rank.me == 2) return;
    Ranks ranks;
    EXPECT_EQ(thrown_by([&] { rank.world().barrier(); }, &ranks),
              "peer_failed: barrier 1 of group world: rank 2 (host, pid 102) died");
    EXPECT_EQ(ranks, Ranks{{2}});
    // Later calls report the death itself, not the call that it ended.
    EXPECT_EQ(thrown_by([&] { rank.world().barrier(); }),
              "peer_failed: barrier of group world: rank 2 (host, pid 102) died");
  });
  news.join();
}

TEST(GroupFailure, ADeathEndsAsynchronousCallsAndQueuedOnes) {
  FakeJob job(2);
  ProcessGroup world = job[0].world();
  Work first = world.barrier_async();
  Work second = world.barrier_async();
  job.tables().named("world").wait_inside(1, 1);
  job.watch().died(1);
  EXPECT_EQ(thrown_by([&] { first.wait(); }),
            "peer_failed: barrier 1 of group world: rank 1 (host, pid 101) died");
  EXPECT_EQ(thrown_by([&] { second.wait(); }),
            "peer_failed: barrier 2 of group world: rank 1 (host, pid 101) died");
  ASSERT_TRUE(second.error().has_value());
  EXPECT_EQ(second.error()->failed_ranks(), Ranks{{1}});
  EXPECT_EQ(second.error()->operation(), "barrier");
}

TEST(GroupFailure, ADeathEndsOnlyTheGroupsOfTheDeadRank) {
  FakeJob job(3);
  job.each([](FakeRank& rank) {
    if (rank.me == 2) return;
    ProcessGroup pair = rank.new_group({{0}, {1}}, {.name = "pair"});
    if (rank.me == 0) pair.barrier();
    if (rank.me == 1) pair.barrier();
  });
  job.watch().died(2);
  job.watch().settle();
  EXPECT_NE(job[0].world().failure(), std::nullopt);
  job.each([](FakeRank& rank) {
    if (rank.me != 2) rank.new_group({{0}, {1}}).barrier();
  });
}

// The connection ends first; the news of the death arrives a moment later.
TEST(GroupFailure, AReportOfTheWatchOutranksOneOfTheBackend) {
  FakeJob job(2);
  job.tables().named("world").fail_at(
      1, {ErrorCode::peer_failed, "rank 1 closed its connection", {{1}}});
  std::thread other([&] { thrown_by([&] { job[1].world().barrier(); }); });
  std::thread news([&] {
    job.tables().named("world").wait_inside(1, 2);
    job.watch().died(1);
  });
  EXPECT_EQ(thrown_by([&] { job[0].world().barrier(); }),
            "peer_failed: barrier 1 of group world: rank 1 (host, pid 101) died");
  other.join();
  news.join();
}

// As in new_group() when rank 0, whose process serves the store, dies.
TEST(GroupFailure, AReportOfTheWatchOutranksALostStore) {
  FakeJob job(2);
  job.tables().named("world").fail_at(
      1, {ErrorCode::rendezvous, "the server closed the connection", {}});
  std::thread other([&] { thrown_by([&] { job[0].world().barrier(); }); });
  std::thread news([&] {
    job.tables().named("world").wait_inside(1, 2);
    job.watch().died(0);
  });
  EXPECT_EQ(thrown_by([&] { job[1].world().barrier(); }),
            "peer_failed: barrier 1 of group world: rank 0 (host, pid 100) died");
  other.join();
  news.join();
}

TEST(GroupFailure, AFailureOnOneRankIsReportedToTheOthers) {
  FakeJob job(2);
  const std::string text = thrown_by([&] { job[0].world().barrier({.timeout = 5ms}); });
  const std::string why =
      "rank 1 (host, pid 101) has not called it within 5 ms (nor anything before); check what it "
      "is doing instead, or give a longer timeout";
  EXPECT_EQ(text, "timeout: barrier 1 of group world: " + why);
  job.watch().settle();
  Ranks ranks;
  EXPECT_EQ(thrown_by([&] { job[1].world().barrier(); }, &ranks),
            "timeout: barrier of group world: rank 0 (host, pid 100) gave up on the group: " + why);
  EXPECT_EQ(ranks, Ranks{{1}});
}

TEST(GroupFailure, AbortEndsTheCallsOfAllRanksWithItsReason) {
  FakeJob job(3);
  std::thread aborter([&] {
    job.tables().named("world").wait_inside(1, 2);
    job[1].world().abort("loss is NaN");
    job[1].world().abort("again");
  });
  job.each([](FakeRank& rank) {
    if (rank.me == 2) return;
    EXPECT_EQ(
        thrown_by([&] { rank.world().barrier(); }),
        "aborted: barrier 1 of group world: rank 1 (host, pid 101) aborted the group: loss is "
        "NaN");
  });
  aborter.join();
  job.watch().settle();
  EXPECT_EQ(thrown_by([&] { job[2].world().barrier(); }),
            "aborted: barrier of group world: rank 1 (host, pid 101) aborted the group: loss is "
            "NaN");
}

TEST(GroupFailure, ADeathCausedByAnAbortDoesNotReplaceItsReason) {
  FakeJob job(2);
  job.watch().while_telling = [&] {
    job.watch().died(1);
    job.watch().settle();
  };
  job[0].world().abort("loss is NaN");
  EXPECT_EQ(thrown_by([&] { job[0].world().barrier(); }),
            "aborted: barrier of group world: rank 0 (host, pid 100) aborted the group: loss is "
            "NaN");
}

TEST(GroupFailure, AnAbortsReasonIsPrintedOnOneLine) {
  FakeJob job(2);
  job[0].world().abort("first\nmuster: rank 1 FAILED\x1b[31m");
  job.watch().settle();
  EXPECT_EQ(thrown_by([&] { job[1].world().barrier(); }),
            "aborted: barrier of group world: rank 0 (host, pid 100) aborted the group: first "
            "muster: rank 1 FAILED [31m");
}

TEST(GroupFailure, SigtermEndsTheCallsOfItsOwnRank) {
  FakeJob job(2);
  job.watch().stopped(0);
  job.watch().settle();
  EXPECT_TRUE(job[0].world().failure().has_value());
  EXPECT_EQ(job[1].world().failure(), std::nullopt);
  EXPECT_EQ(thrown_by([&] { job[0].world().barrier(); }),
            "stopped: barrier of group world: the job was told to end (SIGTERM)");
}

// Rank 2 has finished the barrier and leaves; rank 1 has not entered it yet.
TEST(GroupFailure, ARankThatLeavesAfterAnOperationDoesNotEndItForOthers) {
  FakeJob job(3);
  GroupShutdown departures(job[0].group->members());
  departures.gave_notice(2, {5, 0});
  EXPECT_FALSE(departures.missing_in(0, 5));
  auto text = blocked(job.tables().named("world"), 1, [&] { job[0].world().barrier(); });
  job.watch().say(
      {.kind = Watch::News::Kind::performed, .rank = {2}, .performed = {{"world", {1, 0}}}});
  job.watch().left(2);
  job.watch().settle();
  EXPECT_EQ(job[0].world().failure(), std::nullopt);
  std::thread one([&] { job[1].world().barrier(); });
  std::thread two([&] { job[2].world().barrier(); });
  one.join();
  two.join();
  EXPECT_EQ(text.get(), "nothing");
  Ranks ranks;
  EXPECT_EQ(thrown_by([&] { job[0].world().barrier(); }, &ranks),
            "peer_failed: barrier 2 of group world: rank 2 (host, pid 102) left "
            "(destroy_process_group) before this operation");
  EXPECT_EQ(ranks, Ranks{{2}});
}

TEST(GroupFailure, ARankThatLeavesEndsOperationsItHasNotEntered) {
  FakeJob job(3);
  auto first = blocked(job.tables().named("world"), 1, [&] { job[0].world().barrier(); });
  job[2].host->close_groups();
  job.watch().left(2);
  EXPECT_EQ(first.get(),
            "peer_failed: barrier 1 of group world: rank 2 (host, pid 102) left "
            "(destroy_process_group) before this operation");
}

TEST(GroupFailure, LeavingWaitsForTheRanksOwnWorkAndThenRefusesCalls) {
  FakeJob job(2);
  ProcessGroup world = job[0].world();
  Work work = world.barrier_async();
  job.tables().named("world").wait_inside(1, 1);
  std::promise<void> closed;
  std::thread leaver([&] {
    job[0].host->close_groups();
    closed.set_value();
  });
  auto is_closed = closed.get_future();
  EXPECT_EQ(is_closed.wait_for(5ms), std::future_status::timeout);
  job[1].world().barrier();
  leaver.join();
  EXPECT_TRUE(work.is_completed());
  work.wait();
  EXPECT_EQ(thrown_by([&] { world.barrier(); }),
            "not_initialized: barrier of group world: this rank has left the group; initialise "
            "and make it again");
  // The watch is released although handles remain.
  EXPECT_EQ(job[0].host->watch, nullptr);
  EXPECT_EQ(job.watch().listeners(), 1U);
}

TEST(GroupFailure, AForkedChildRefusesEveryCallAndCanDropItsHandles) {
  arm_fork_guard();
  FakeJob job(2);
  job.each([](FakeRank& rank) { rank.world().barrier_async().wait(); });
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ProcessGroup world = job[0].world();
    job[0].group.reset();
    std::vector<float> data(1);
    int wrong = 0;
    const auto expect_forked = [&](const auto& call) {
      wrong += thrown_by(call).starts_with("forked: ") ? 0 : 1;
    };
    expect_forked([&] { world.barrier(); });
    expect_forked([&] { static_cast<void>(world.barrier_async()); });
    expect_forked([&] { world.broadcast(data, GroupRank{0}); });
    expect_forked([&] { world.send(data, GroupRank{1}); });
    expect_forked([&] { static_cast<void>(world.irecv(data, GroupRank{1})); });
    expect_forked([&] { world.monitored_barrier(); });
    expect_forked([&] { world.all_gather_bytes(""); });
    expect_forked([&] { world.allocate_shared(1); });
    expect_forked([&] { world.split(0); });
    expect_forked([&] { job[1].new_group({{1}}); });
    expect_forked([&] { world.abort(); });
    expect_forked([&] { static_cast<void>(world.failure()); });
    world = {};
    ::_exit(wrong);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  job.each([](FakeRank& rank) { rank.world().barrier(); });
}

TEST(GroupFailure, AGroupWithoutHandlesLivesUntilItsWorkIsDone) {
  FakeJob job(2);
  std::weak_ptr<Group> forgotten;
  Work work;
  {
    ProcessGroup pair;
    std::thread other([&] {
      ProcessGroup theirs = job[1].new_group({{0}, {1}}, {.name = "pair"});
      job.tables().named("pair").wait_inside(1, 1);
      theirs.barrier();
    });
    pair = job[0].new_group({{0}, {1}}, {.name = "pair"});
    work = pair.barrier_async();
    pair = {};
    other.join();
  }
  work.wait();
  EXPECT_EQ(work.error(), std::nullopt);
  // Both worlds remain, and at most rank 0's dropped pair, which the next group removes.
  job.each([](FakeRank& rank) { rank.new_group({{0}, {1}}).barrier(); });
  job[0].host->close_groups();
  job[1].host->close_groups();
  EXPECT_EQ(job.watch().listeners(), 0U);
}

}  // namespace
}  // namespace muster::worker::group_test
