// What ranks in destroy_process_group() wait for: real messages through shared memory between ranks
// that leave. The rule is in group_shutdown_test.cc.
#include <algorithm>
#include <chrono>
#include <future>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/unit/worker_lib/group/fake_backend.h"
#include "tests/wait_for.h"
#include "worker_lib/group/group_shutdown.h"

namespace muster::worker::group_test {
namespace {

// Groups over the cpu backend. leave() returns how many seconds it took.
class LeavingJob {
 public:
  explicit LeavingJob(int ranks)
      : job_(ranks, [](GroupHost& host) {
          host.makers.cpu = make_cpu_backend;
          for (Peer& peer : host.world.peers)
            peer.pid = ::getpid();
        }) {}

  FakeJob& job() { return job_; }
  double leave(FakeRank& rank) {
    const auto begun = std::chrono::steady_clock::now();
    rank.host->close_groups();
    job_.watch().left(rank.me);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  }
  // Waits until the rank has reported its pending transfers.
  void wait_leaving(int rank) {
    const auto is_it = [&](const Watch::News& news) {
      return news.kind == Watch::News::Kind::pending && news.rank == GlobalRank{rank};
    };
    test::wait_for([&] { return std::ranges::any_of(job_.watch().history(), is_it); }, "the news");
  }

 private:
  FakeJob job_;
};

std::vector<int64_t> numbers(size_t count) {
  std::vector<int64_t> made(count);
  std::iota(made.begin(), made.end(), 0);
  return made;
}

constexpr size_t kLarge =
    2'000'000;  // Elements: far more than shared memory or the kernel buffers.
// The timeouts are a minute; no rank may wait for one.
constexpr double kSoon = 30;

TEST(Leaving, DoesNotWaitForReceivesWithoutASender) {
  LeavingJob leaving(3);
  leaving.job().each([&](FakeRank& rank) {
    std::vector<int64_t> data(4);
    std::vector<int64_t> other(4);
    ProcessGroup world = rank.world();
    Work from_next = world.irecv(data, GroupRank{(rank.me + 1) % 3});
    Work from_any = world.irecv_any(other, 3);
    const double seconds = leaving.leave(rank);
    EXPECT_LT(seconds, kSoon);
    if (rank.me == 0) std::printf("left after %.3f s\n", seconds);
    for (Work* const work : {&from_next, &from_any}) {
      EXPECT_TRUE(thrown_by([&] { work->wait(); }).starts_with("not_initialized: recv from "));
    }
  });
}

TEST(Leaving, WaitsForASendThatIsStillReceived) {
  LeavingJob leaving(2);
  leaving.job().each([&](FakeRank& rank) {
    ProcessGroup world = rank.world();
    std::vector<int64_t> data = numbers(kLarge);
    if (rank.me == 0) {
      Work work = world.isend(data, GroupRank{1}, 5);
      leaving.leave(rank);
      work.wait();
      return;
    }
    leaving.wait_leaving(0);
    test::pause_for(kLastMessage + 300ms, "a message that is not announced is given up by then");
    std::vector<int64_t> got(kLarge);
    world.recv(got, GroupRank{0}, 5);
    EXPECT_EQ(got, data);
    leaving.leave(rank);
  });
}

TEST(Leaving, CompletesMatchedTransfersAndDropsTheRest) {
  LeavingJob leaving(2);
  leaving.job().each([&](FakeRank& rank) {
    ProcessGroup world = rank.world();
    const GroupRank other{1 - rank.me};
    const std::vector<int64_t> data = numbers(kLarge);
    std::vector<int64_t> got(kLarge);
    std::vector<int64_t> never(1);
    Work send = world.isend(data, other, 1 + rank.me);
    Work unwanted = world.isend(data, other, 9);  // Received or not, no rank waits for it.
    Work receive = world.irecv(got, other, 2 - rank.me);
    Work twice = world.irecv(never, other, 2 - rank.me);
    EXPECT_LT(leaving.leave(rank), kSoon);
    send.wait();
    receive.wait();
    EXPECT_EQ(got, data);
    EXPECT_NE(thrown_by([&] { twice.wait(); }), "nothing");
  });
}

// The others rely on the counts of a rank that has left; for a group without handles these are
// known only once its work is done.
TEST(Leaving, ReportsTheFinalCountsOfAGroupWithoutHandles) {
  LeavingJob leaving(2);
  std::promise<void> let_go;
  leaving.job().each([&](FakeRank& rank) {
    std::vector<int64_t> first(4, 1);
    std::vector<int64_t> second(4, 1);
    ProcessGroup group = rank.world().split(0, 0);
    if (rank.me == 1) let_go.get_future().wait();
    Work one = group.all_reduce_async(first);
    Work two = group.all_reduce_async(second);
    group = ProcessGroup();
    if (rank.me == 0) let_go.set_value();
    leaving.leave(rank);
    one.wait();
    two.wait();
    EXPECT_EQ(second, std::vector<int64_t>(4, 2));
  });
  leaving.job().watch().settle();
  int said = 0;
  for (const Watch::News& news : leaving.job().watch().history()) {
    if (news.kind != Watch::News::Kind::performed) continue;
    const auto performed = [](const ShutdownNotice& one) {
      return one.performed == OperationCounts{2, 0};
    };
    EXPECT_EQ(std::ranges::count_if(news.performed, performed), 1);
    ++said;
  }
  EXPECT_EQ(said, 2);
}

// The messages of the other ranks use the same memory.
TEST(Leaving, DoesNotDisturbTheOtherRanks) {
  LeavingJob leaving(4);
  std::promise<void> two_are_gone;
  auto gone = two_are_gone.get_future().share();
  std::atomic<int> left{0};
  leaving.job().each([&](FakeRank& rank) {
    ProcessGroup world = rank.world();
    if (rank.me < 2) {
      std::vector<int64_t> data(4);
      Work work = world.irecv(data, GroupRank{1 - rank.me});
      EXPECT_LT(leaving.leave(rank), kSoon);
      if (++left == 2) two_are_gone.set_value();
      return;
    }
    std::vector<int64_t> data = numbers(kLarge);
    const GroupRank other{5 - rank.me};
    std::vector<int64_t> got(kLarge);
    Work receive = world.irecv(got, other);
    gone.wait();
    world.isend(data, other).wait();
    receive.wait();
    EXPECT_EQ(got, data);
    leaving.leave(rank);
  });
}

class LeavingOrder : public testing::TestWithParam<bool> {};

TEST_P(LeavingOrder, AReceiveFromALeavingRankFails) {
  LeavingJob leaving(2);
  leaving.job().each([&](FakeRank& rank) {
    ProcessGroup world = rank.world();
    std::vector<int64_t> data(4);
    if (rank.me == 0) {
      Work forgotten = world.irecv(data, GroupRank{1});
      EXPECT_LT(leaving.leave(rank), kSoon);
      return;
    }
    if (GetParam()) {
      leaving.wait_leaving(0);
      leaving.job().watch().settle();
    }
    const std::string text = thrown_by([&] { world.recv(data, GroupRank{0}); });
    EXPECT_TRUE(text.starts_with("peer_failed: recv from rank 0 ")) << text;
    EXPECT_TRUE(text.ends_with(" left (destroy_process_group)")) << text;
  });
}

INSTANTIATE_TEST_SUITE_P(WhoIsFirst, LeavingOrder, testing::Bool());

}  // namespace
}  // namespace muster::worker::group_test
