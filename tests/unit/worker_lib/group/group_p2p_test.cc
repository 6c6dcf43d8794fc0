// Messages between two ranks, byte strings, shared memory: what a group does beside collectives.

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/worker_lib/group/fake_backend.h"

namespace muster::worker::group_test {
namespace {

using Ranks = std::vector<GlobalRank>;

TEST(GroupP2P, MessagesMatchByPairAndTag) {
  FakeJob job(3);
  job.each([](FakeRank& rank) {
    ProcessGroup world = rank.world();
    std::vector<int64_t> data{rank.me, 7};
    if (rank.me != 0) {
      world.send(data, GroupRank{0}, rank.me);
      world.send(data, GroupRank{0}, 9);
      return;
    }
    world.recv(data, GroupRank{2}, 2);
    EXPECT_EQ(data, (std::vector<int64_t>{2, 7}));
    world.recv(data, GroupRank{1}, 1);
    EXPECT_EQ(data, (std::vector<int64_t>{1, 7}));
    const GroupRank first = world.recv_any(data, 9);
    EXPECT_EQ(data[0], first.value);
    Work second = world.irecv_any(data, 9);
    second.wait();
    EXPECT_EQ(second.source().value, 3 - first.value);
    EXPECT_EQ(data[0], 3 - first.value);
  });
}

TEST(GroupP2P, ABatchReturnsOneWorkPerTransferInOrder) {
  FakeJob job(3);
  job.each([](FakeRank& rank) {
    ProcessGroup world = rank.world();
    const GroupRank right{(rank.me + 1) % 3};
    const GroupRank left{(rank.me + 2) % 3};
    const std::vector<int64_t> mine{rank.me};
    std::vector<int64_t> from_left(1);
    std::vector<int64_t> from_right(1);
    const std::vector<P2POp> ops{P2POp::recv(from_left, left), P2POp::send(mine, right),
                                 P2POp::recv(from_right, right, 1), P2POp::send(mine, left, 1)};
    std::vector<Work> works = world.batch_isend_irecv(ops);
    ASSERT_EQ(works.size(), 4U);
    for (Work& work : works)
      work.wait();
    EXPECT_EQ(from_left[0], left.value);
    EXPECT_EQ(from_right[0], right.value);
    EXPECT_EQ(works[0].source(), left);
    EXPECT_TRUE(world.batch_isend_irecv({}).empty());
  });
}

TEST(GroupP2P, ABatchWithAnUnsoundTransferBeginsNone) {
  FakeJob job(2);
  ProcessGroup world = job[0].world();
  std::vector<int64_t> data(1);
  const std::vector<P2POp> ops{P2POp::send(data, GroupRank{1}), P2POp::recv(data, GroupRank{0})};
  EXPECT_EQ(thrown_by([&] { static_cast<void>(world.batch_isend_irecv(ops)); }),
            "invalid_argument: recv of group world: peer 0 is this rank itself; copy the memory "
            "instead");
  EXPECT_EQ(thrown_by([&] { job[1].world().recv(data, GroupRank{0}, 0, {.timeout = 5ms}); }),
            "timeout: recv from rank 0 (host, pid 100) of group world: no message came in time");
}

TEST(GroupP2P, FailuresNameThePeerAndTheTag) {
  FakeJob job(2);
  ProcessGroup world = job[0].world();
  std::vector<int64_t> data(1);
  Work work = world.irecv(data, GroupRank{1}, 3);
  job.tables().named("world").wait_inside(0, 1);
  job.watch().died(1);
  EXPECT_EQ(
      thrown_by([&] { work.wait(); }),
      "peer_failed: recv from rank 1 (host, pid 101) with tag 3 of group world: rank 1 (host, "
      "pid 101) died");
  ASSERT_TRUE(work.error().has_value());
  EXPECT_EQ(work.error()->operation(), "recv");
  EXPECT_EQ(work.error()->group(), "world");
  EXPECT_EQ(work.error()->failed_ranks(), Ranks{{1}});
}

TEST(GroupP2P, TheLastMessageOfARankThatLeftIsStillReceived) {
  FakeJob job(2);
  std::vector<int64_t> data{42};
  job[1].world().send(data, GroupRank{0});
  job[1].host->close_groups();
  job.watch().left(1);
  job.watch().settle();
  ProcessGroup world = job[0].world();
  data[0] = 0;
  world.recv(data, GroupRank{1});
  EXPECT_EQ(data[0], 42);
  EXPECT_EQ(thrown_by([&] { world.send(data, GroupRank{1}); }),
            "peer_failed: send to rank 1 (host, pid 101) of group world: rank 1 (host, pid 101) "
            "left (destroy_process_group)");
}

TEST(GroupP2P, AWaitForARankThatLeavesFails) {
  for (const bool any : {false, true}) {
    FakeJob job(2);
    std::vector<int64_t> data(1);
    Ranks ranks;
    auto text = std::async(std::launch::async, [&] {
      return thrown_by(
          [&] {
            ProcessGroup world = job[0].world();
            any ? static_cast<void>(world.recv_any(data)) : world.recv(data, GroupRank{1});
          },
          &ranks);
    });
    job.tables().named("world").wait_inside(0, 1);
    job.watch().left(1);
    EXPECT_EQ(text.get(),
              any ? "peer_failed: recv from any rank of group world: all other ranks left "
                    "(destroy_process_group)"
                  : "peer_failed: recv from rank 1 (host, pid 101) of group world: rank 1 (host, "
                    "pid 101) left (destroy_process_group)");
    EXPECT_EQ(ranks, Ranks{{1}});
  }
}

TEST(GroupP2P, AReceiveFromARankThatLeftFails) {
  for (const bool begun : {false, true}) {
    FakeJob job(2);
    job.watch().left(1);
    job.watch().settle();
    std::vector<int64_t> data(1);
    const auto receive = [&] {
      ProcessGroup world = job[0].world();
      begun ? world.irecv(data, GroupRank{1}).wait() : world.recv(data, GroupRank{1});
    };
    EXPECT_EQ(
        thrown_by(receive),
        "peer_failed: recv from rank 1 (host, pid 101) of group world: rank 1 (host, pid 101) "
        "left (destroy_process_group)");
  }
}

TEST(GroupBytes, StringsOfAnyLengthReachAllRanks) {
  FakeJob job(3);
  job.each([](FakeRank& rank) {
    ProcessGroup world = rank.world();
    for (const size_t size : {size_t{0}, size_t{1}, size_t{100000}}) {
      const std::string sent(size, 'x');
      std::string bytes = rank.me == 1 ? sent : "what was here";
      world.broadcast_bytes(bytes, GroupRank{1});
      EXPECT_EQ(bytes, sent);
    }
    const std::string mine(static_cast<size_t>(rank.me * 1000), static_cast<char>('a' + rank.me));
    const std::vector<std::string> all = world.all_gather_bytes(mine);
    EXPECT_EQ(all, (std::vector<std::string>{"", std::string(1000, 'b'), std::string(2000, 'c')}));
    EXPECT_EQ(thrown_by([&] {
                std::string none;
                world.broadcast_bytes(none, GroupRank{3});
              }),
              "invalid_argument: broadcast_bytes of group world: root 3 is not in the group, whose "
              "ranks are 0 to 2");
  });
}

TEST(GroupShared, EveryMemberGetsZeroedMemoryOfItsOwn) {
  FakeJob job(2);
  job.each([](FakeRank& rank) {
    ProcessGroup world = rank.world();
    const SharedMemory memory = world.allocate_shared(8192);
    EXPECT_EQ(memory.bytes(), 8192U);
    EXPECT_EQ(memory.as<double>().size(), 1024U);
    EXPECT_EQ(memory.as<double>()[1023], 0.0);
    EXPECT_EQ(world.allocate_shared(0).bytes(), 0U);
  });
}

TEST(GroupShared, TooManyBytesAreRefusedWithoutFailingTheGroup) {
  FakeJob job(2);
  job.each([](FakeRank& rank) {
    if (rank.me == 0) {
      EXPECT_EQ(thrown_by([&] { rank.world().allocate_shared(size_t{1} << 60); }),
                "invalid_argument: allocate_shared of group world: 1152921504606846976 bytes for "
                "each rank; the maximum is 8796093022208");
    }
    rank.world().barrier();
  });
}

TEST(GroupShared, MembersThatAskForDifferentSizesAreRefused) {
  FakeJob job(3);
  job.each([](FakeRank& rank) {
    Ranks ranks;
    EXPECT_EQ(thrown_by([&] { rank.world().allocate_shared(rank.me == 1 ? 100 : 4096); }, &ranks),
              "mismatch: allocate_shared of group world: rank 1 (host, pid 101) asks for 100 bytes "
              "where rank 0 (host, pid 100) asks for 4096; all must ask for the same");
    EXPECT_EQ(ranks, Ranks{{1}});
  });
}

}  // namespace
}  // namespace muster::worker::group_test
