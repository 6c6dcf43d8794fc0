// How the members of a group make it, and what happens if one is absent.

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/worker_lib/group/fake_backend.h"
#include "worker_lib/group/group_plan.h"

namespace muster::worker::group_test {
namespace {

using Ranks = std::vector<GlobalRank>;

Ranks up_to(int end, int step = 1) {
  Ranks ranks;
  for (int rank = 0; rank < end; rank += step)
    ranks.push_back({rank});
  return ranks;
}

TEST(GroupCreate, OnlyMembersTakePartAndNoOtherRankIsAwaited) {
  FakeJob job(3);
  job.each([&](FakeRank& rank) {
    if (rank.me == 1) return;
    ProcessGroup group = rank.new_group({{2}, {0}}, {.name = "ends", .timeout = 5s});
    EXPECT_EQ(group.rank().value, rank.me == 2 ? 0 : 1);
    EXPECT_EQ(group.size(), 2);
    EXPECT_EQ(group.name(), "ends");
    EXPECT_EQ(group.timeout(), 5s);
    EXPECT_EQ(group.global_rank({0}), GlobalRank{2});
    EXPECT_EQ(group.group_rank({0}), GroupRank{1});
    std::vector<int64_t> data{rank.me};
    group.broadcast(data, GroupRank{0});
    EXPECT_EQ(data[0], 2);
  });
}

TEST(GroupCreate, GroupsOfTheSameRanksHaveDifferentNamesTheSameOnAllRanks) {
  FakeJob job(3);
  job.each([&](FakeRank& rank) {
    if (rank.me == 1) return;
    EXPECT_EQ(rank.new_group({{0}, {2}}, {}).name(), "group of ranks 0,2");
    EXPECT_EQ(rank.new_group({{2}, {0}}, {}).name(), "group of ranks 2,0");
    EXPECT_EQ(rank.new_group({{0}, {2}}, {}).name(), "group of ranks 0,2 (#2)");
  });
}

TEST(GroupCreate, ARankThatIsNoMemberGetsAGroupThatRefusesCalls) {
  FakeJob job(3);
  ProcessGroup others = job[1].new_group({{0}, {2}});
  EXPECT_TRUE(others.valid());
  EXPECT_FALSE(others.is_member());
  EXPECT_EQ(others.size(), 2);
  EXPECT_EQ(others.ranks(), (Ranks{{0}, {2}}));
  const std::string end =
      " of group of ranks 0,2: rank 1 (host, pid 101) is not a member of it; only members may call "
      "its operations (see is_member())";
  std::vector<float> data(1);
  EXPECT_EQ(thrown_by([&] { others.barrier(); }), "not_member: barrier" + end);
  EXPECT_EQ(thrown_by([&] { static_cast<void>(others.barrier_async()); }),
            "not_member: barrier" + end);
  EXPECT_EQ(thrown_by([&] { others.broadcast(data, GroupRank{9}); }),
            "not_member: broadcast" + end);
  EXPECT_EQ(thrown_by([&] { others.send(data, GroupRank{0}); }), "not_member: send" + end);
  EXPECT_EQ(thrown_by([&] { static_cast<void>(others.irecv_any(data)); }),
            "not_member: recv" + end);
  EXPECT_EQ(thrown_by([&] { others.monitored_barrier(); }), "not_member: monitored_barrier" + end);
  EXPECT_EQ(thrown_by([&] { others.all_gather_bytes(""); }), "not_member: all_gather_bytes" + end);
  EXPECT_EQ(thrown_by([&] { others.allocate_shared(1); }), "not_member: allocate_shared" + end);
  EXPECT_EQ(thrown_by([&] { others.split(0); }), "not_member: split" + end);
  EXPECT_EQ(thrown_by([&] { others.abort(); }), "not_member: abort" + end);
  EXPECT_EQ(thrown_by([&] { others.rank(); }),
            "not_member: rank of group of ranks 0,2: this rank is not a member of it (see "
            "is_member())");
  EXPECT_EQ(thrown_by([&] { others.group_rank({1}); }),
            "invalid_argument: group_rank of group of ranks 0,2: rank 1 of the job is not in it");
  EXPECT_EQ(
      thrown_by([&] { others.global_rank({2}); }),
      "invalid_argument: global_rank of group of ranks 0,2: rank 2 is not in the group, whose "
      "ranks are 0 to 1");
}

TEST(GroupCreate, GroupsOfTheSameRanksAreDifferentGroups) {
  FakeJob job(2);
  job.each([&](FakeRank& rank) {
    ProcessGroup first = rank.new_group({{0}, {1}}, {.name = "first"});
    ProcessGroup second = rank.new_group({{0}, {1}}, {.name = "second"});
    if (rank.me == 0) first.abort("done with it");
    EXPECT_TRUE(thrown_by([&] { first.barrier({.timeout = 60s}); }).starts_with("aborted: "));
    second.barrier();
    EXPECT_EQ(second.failure(), std::nullopt);
  });
}

TEST(GroupCreate, ThreadsMakeGroupsInAnyOrder) {
  FakeJob job(2);
  constexpr int kThreads = 4;
  job.each([&](FakeRank& rank) {
    std::vector<std::thread> makers;
    // Threads list the ranks in different orders, so that their groups are not mixed up.
    for (int t = 0; t < kThreads; ++t) {
      makers.emplace_back([&rank, t] {
        const bool swapped = t % 2 == 1;
        if (t >= 2) {
          std::vector<int64_t> told{rank.me};
          rank.new_group({{rank.me}}).broadcast(told, GroupRank{0});
          return;
        }
        ProcessGroup group = swapped ? rank.new_group({{1}, {0}}) : rank.new_group({{0}, {1}});
        std::vector<int64_t> told{rank.me};
        group.broadcast(told, GroupRank{0});
        EXPECT_EQ(told[0], swapped ? 1 : 0);
      });
    }
    for (std::thread& maker : makers)
      maker.join();
  });
}

TEST(GroupCreate, MakingAGroupLeavesNothingInTheStore) {
  FakeJob job(2);
  const auto keys = [&] {
    auto store = job[0].host->connect_store(Deadline::max());
    return *store->num_keys();
  };
  job.each([](FakeRank& rank) { rank.new_group({{0}, {1}}); });
  const int64_t before = keys();
  job.each([](FakeRank& rank) {
    for (int i = 0; i < 20; ++i)
      rank.new_group({{0}, {1}}).barrier();
  });
  // The last member to finish removes the keys, and the barrier does not wait for that.
  job.each([](FakeRank& rank) { rank.new_group({{0}, {1}}); });
  EXPECT_LE(keys(), before + 8);
}

TEST(GroupCreate, ATimeOutNamesAbsentRanks) {
  FakeJob job(4);
  job.each([](FakeRank& rank) {
    if (rank.me >= 2) return;
    if (rank.me == 0) wait_until_entered(rank, ranks_digest(up_to(4)) + ".1/host", 1);
    Ranks missing;
    const std::string text = thrown_by(
        [&] {
          rank.new_group(
              up_to(4),
              {.name = "all", .timeout = std::chrono::milliseconds(rank.me == 0 ? 500 : 60000)});
        },
        &missing);
    EXPECT_EQ(missing, (Ranks{{2}, {3}}));
    const std::string what =
        "rank 2 (host, pid 102) and rank 3 (host, pid 103) did not arrive within 500 ms; all its "
        "ranks must call new_group() as often, each time with the same list in the same order";
    // The rank whose time ends first reports it to the others.
    EXPECT_EQ(
        text,
        rank.me == 0
            ? "timeout: new_group of group all: " + what
            : "timeout: new_group of group all: rank 0 (host, pid 100) gave up on the group: " +
                  what);
  });
}

TEST(GroupCreate, RefusesMembersThatAskForDifferentBackends) {
  FakeJob job(2);
  job.each([](FakeRank& rank) {
    const std::string text = thrown_by([&] {
      rank.new_group({{0}, {1}}, {.backend = rank.me == 0 ? Backend::cpu : Backend::automatic});
    });
    EXPECT_TRUE(text.starts_with("mismatch: new_group of group of ranks 0,1: ")) << text;
    EXPECT_NE(text.find("rank 1 (host, pid 101) asks for the backend automatic, and rank 0 (host, "
                        "pid 100) for cpu; ask for the same on all"),
              std::string::npos)
        << text;
  });
}

TEST(GroupCreate, ReportsAnUnavailableBackendBeforeWaitingForMembers) {
  FakeJob job(2, [](GroupHost& host) {
    host.makers.gloo = {};
    host.makers.nccl_available = [](std::string* why) {
      *why = "there is no libnccl.so.2";
      return false;
    };
  });
  EXPECT_EQ(thrown_by([&] { job[0].new_group({{0}, {1}}, {.backend = Backend::nccl}); }),
            "backend: new_group of group of ranks 0,1: GPU memory cannot be used: there is no "
            "libnccl.so.2");
  EXPECT_EQ(
      thrown_by([&] { job[0].new_group({{0}, {1}}, {.backend = Backend::gloo}); }),
      "backend: new_group of group of ranks 0,1 (#2): this build of muster has no backend gloo");
}

TEST(GroupCreate, AGroupOfOneRankNeedsItsBackendsLibraryToo) {
  FakeJob job(2);
  setenv("MUSTER_GLOO_LIBRARY", "/nonexistent/libgloo.so", 1);
  const std::string why = thrown_by([&] { job[0].new_group({{0}}, {.backend = Backend::gloo}); });
  unsetenv("MUSTER_GLOO_LIBRARY");
  EXPECT_TRUE(
      why.starts_with("backend: new_group of group of rank 0: the gloo backend cannot be "
                      "opened: "))
      << why;
}

TEST(GroupCreate, ADeathEndsTheWaitForTheMembers) {
  FakeJob job(3);
  std::thread news([&] {
    wait_until_entered(job[0], ranks_digest(up_to(3)) + ".1/host", 1);
    job.watch().died(2);
  });
  EXPECT_EQ(thrown_by([&] { job[0].new_group(up_to(3)); }),
            "peer_failed: new_group of group of ranks 0-2: rank 2 (host, pid 102) died");
  news.join();
}

TEST(GroupCreate, DoesNotWaitForARankThatLeft) {
  FakeJob job(3);
  job[2].host->close_groups();
  job.watch().left(2);
  job.watch().settle();
  EXPECT_EQ(thrown_by([&] { job[0].new_group(up_to(3)); }),
            "peer_failed: new_group of group of ranks 0-2: rank 2 (host, pid 102) left "
            "(destroy_process_group)");
}

TEST(GroupCreate, SplitsFormGroupsByColorInTheOrderOfTheKeys) {
  FakeJob job(5);
  job.each([](FakeRank& rank) {
    ProcessGroup world = rank.world();
    const int color = rank.me == 4 ? -1 : rank.me % 2;
    ProcessGroup part = world.split(color, -rank.me, {.name = rank.me == 4 ? "" : "part"});
    EXPECT_EQ(part.is_member(), rank.me != 4);
    if (rank.me == 4) return;
    EXPECT_EQ(part.ranks(), color == 0 ? (Ranks{{2}, {0}}) : (Ranks{{3}, {1}}));
    std::vector<int64_t> told{rank.me};
    part.broadcast(told, GroupRank{0});
    EXPECT_EQ(told[0], color == 0 ? 2 : 3);
    // Splits the part again.
    ProcessGroup alone = part.split(part.rank().value);
    EXPECT_EQ(alone.ranks(), Ranks{{rank.me}});
    alone.barrier();
  });
}

TEST(GroupCreate, ASplitRefusesAWrongNameOrTimeOutBeforeAnythingIsSent) {
  FakeJob job(2);
  ProcessGroup world = job[0].world();
  EXPECT_EQ(thrown_by([&] { world.split(0, 0, {.name = std::string(65, 'x')}); }),
            "invalid_argument: split: the name has 65 characters; 64 are allowed");
  EXPECT_EQ(thrown_by([&] { world.split(-1, 0, {.timeout = 0ms}); }),
            "invalid_argument: split: the timeout of 0 ms leaves no time");
  EXPECT_TRUE(job.tables().named("world").log(0).empty());
  job.each([](FakeRank& rank) { rank.world().split(0).barrier(); });
}

}  // namespace
}  // namespace muster::worker::group_test
