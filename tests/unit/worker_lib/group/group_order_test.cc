// The order, the thread and the numbers with which a group performs operations.

#include <array>
#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/worker_lib/group/fake_backend.h"

namespace muster::worker::group_test {
namespace {

std::vector<std::string> operations(const std::vector<FakeLogEntry>& log) {
  std::vector<std::string> names;
  for (const FakeLogEntry& entry : log)
    names.push_back(entry.operation);
  return names;
}

std::set<std::thread::id> threads(const std::vector<FakeLogEntry>& log) {
  std::set<std::thread::id> ids;
  for (const FakeLogEntry& entry : log)
    ids.insert(entry.thread);
  return ids;
}

TEST(GroupOrder, SynchronousCallsAreNumberedAndStayOnTheCallersThread) {
  FakeJob job(3);
  job.each([&](FakeRank& rank) {
    ProcessGroup world = rank.world();
    const std::vector<int64_t> in{1, rank.me};
    std::vector<int64_t> out(2);
    world.barrier();
    world.all_reduce(in, out);
    EXPECT_EQ(out, (std::vector<int64_t>{3, 3}));
    std::vector<int64_t> told{rank.me + 40};
    world.broadcast(told, GroupRank{2});
    EXPECT_EQ(told[0], 42);
    const auto log = job.tables().named("world").log(rank.me);
    EXPECT_EQ(operations(log),
              (std::vector<std::string>{"barrier 1", "all_reduce 2", "broadcast 3"}));
    EXPECT_EQ(threads(log), std::set{std::this_thread::get_id()});
  });
}

TEST(GroupOrder, AsynchronousCallsRunInOrderOnOneThreadOfTheGroup) {
  FakeJob job(3);
  constexpr size_t kCalls = 50;
  job.each([&](FakeRank& rank) {
    ProcessGroup world = rank.world();
    std::vector<std::array<int64_t, 1>> in(kCalls);
    std::vector<std::array<int64_t, 1>> out(kCalls);
    std::vector<Work> works;
    for (size_t i = 0; i < kCalls; ++i) {
      in[i][0] = static_cast<int64_t>(i);
      works.push_back(world.all_reduce_async(in[i], out[i]));
    }
    for (size_t i = 0; i < kCalls; ++i) {
      works[i].wait();
      EXPECT_TRUE(works[i].is_completed());
      EXPECT_EQ(works[i].error(), std::nullopt);
      EXPECT_EQ(out[i][0], static_cast<int64_t>(3 * i));
    }
    const auto log = job.tables().named("world").log(rank.me);
    ASSERT_EQ(log.size(), kCalls);
    for (size_t i = 0; i < kCalls; ++i)
      EXPECT_EQ(log[i].operation, fmt::format("all_reduce {}", i + 1));
    EXPECT_EQ(threads(log).size(), 1U);
    EXPECT_FALSE(threads(log).contains(std::this_thread::get_id()));
  });
}

TEST(GroupOrder, ASynchronousCallWaitsForTheAsynchronousOnesBeforeIt) {
  FakeJob job(2);
  job.each([&](FakeRank& rank) {
    ProcessGroup world = rank.world();
    const std::array<int64_t, 1> in{1};
    std::array<int64_t, 1> first{};
    std::array<int64_t, 1> second{};
    // Rank 0 leaves its first call to the queue; rank 1 makes both on its own thread.
    if (rank.me == 0) {
      const Work work = world.all_reduce_async(in, first);
      world.all_reduce(in, second);
      EXPECT_TRUE(work.is_completed());
    } else {
      job.tables().named("world").wait_inside(1, 1);
      world.all_reduce(in, first);
      world.all_reduce(in, second);
    }
    EXPECT_EQ(first[0] + second[0], 4);
    // The queue is empty now: back to the caller's thread.
    world.barrier();
    const auto log = job.tables().named("world").log(rank.me);
    EXPECT_EQ(operations(log),
              (std::vector<std::string>{"all_reduce 1", "all_reduce 2", "barrier 3"}));
    EXPECT_EQ(log[2].thread, std::this_thread::get_id());
    EXPECT_EQ(log[0].thread == std::this_thread::get_id(), rank.me == 1);
  });
}

TEST(GroupOrder, CallsFromSeveralThreadsAreAllPerformed) {
  FakeJob job(2);
  constexpr int kThreads = 4;
  constexpr int kCalls = 100;
  job.each([&](FakeRank& rank) {
    std::vector<std::thread> callers;
    for (int t = 0; t < kThreads; ++t) {
      callers.emplace_back([&rank, t] {
        ProcessGroup world = rank.world();
        for (int i = 0; i < kCalls; ++i) {
          if ((i + t) % 3 == 0) {
            world.barrier_async().wait();
          } else {
            world.barrier();
          }
        }
      });
    }
    for (std::thread& caller : callers)
      caller.join();
    const auto log = job.tables().named("world").log(rank.me);
    ASSERT_EQ(log.size(), static_cast<size_t>(kThreads * kCalls));
    for (size_t i = 0; i < log.size(); ++i)
      EXPECT_EQ(log[i].operation, fmt::format("barrier {}", i + 1));
  });
}

TEST(GroupOrder, AWaitThatExpiresDoesNotEndTheWork) {
  FakeJob job(2);
  job.each([&](FakeRank& rank) {
    ProcessGroup world = rank.world();
    ProcessGroup gate = rank.new_group({{0}, {1}});
    if (rank.me == 0) {
      Work work = world.barrier_async();
      EXPECT_FALSE(work.wait(5ms));
      EXPECT_FALSE(work.is_completed());
      EXPECT_EQ(work.error(), std::nullopt);
      gate.barrier();
      EXPECT_TRUE(work.wait(60s));
      work.synchronize();
    } else {
      gate.barrier();
      world.barrier();
    }
  });
}

// Rank 0 waits for a call with a short timeout behind one with a long timeout.
TEST(GroupOrder, AWaitEndsAtTheDeadlineEvenBehindALongerOperation) {
  FakeJob job(2);
  ProcessGroup world = job[0].world();
  Work first = world.barrier_async({.timeout = 600s});
  job.tables().named("world").wait_inside(1, 1);
  std::vector<int64_t> data(1);
  Work second = world.broadcast_async(data, GroupRank{0}, {.timeout = 20ms});
  const std::string text = thrown_by([&] { second.wait(); });
  EXPECT_EQ(text,
            "timeout: broadcast of group world: its timeout expired while earlier operations were "
            "in progress: rank 1 (host, pid 101) has not called barrier 1 of group world (nor "
            "anything before); check what it is doing instead, or give a longer timeout");
  // This ends the first one, too: the ranks no longer agree on what comes next.
  EXPECT_TRUE(thrown_by([&] { first.wait(); }).starts_with("timeout: barrier 1 of group world: "));
}

TEST(GroupOrder, GpuMemoryUsesABackendThatIsMadeOnFirstUse) {
  FakeJob job(2);
  EXPECT_EQ(job.device_tables().made(), 0);
  job.each([&](FakeRank& rank) {
    ProcessGroup world = rank.world();
    EXPECT_EQ(world.cpu_backend(), Backend::cpu);
    EXPECT_EQ(world.cuda_backend(), Backend::nccl);
    const std::vector<int64_t> in{5};
    std::vector<int64_t> out(1);
    world.barrier();
    const Device gpu = Device::cuda(0);
    world.all_reduce({in.data(), 1, DType::int64, gpu}, Buffer{out.data(), 1, DType::int64, gpu});
    EXPECT_EQ(out[0], 10);
    Work work = world.all_reduce_async({in.data(), 1, DType::int64, gpu},
                                       Buffer{out.data(), 1, DType::int64, gpu});
    work.synchronize();
    EXPECT_EQ(operations(job.device_tables().named("world").log(rank.me)),
              (std::vector<std::string>{"all_reduce 1", "all_reduce 2"}));
    EXPECT_EQ(operations(job.tables().named("world").log(rank.me)),
              (std::vector<std::string>{"barrier 1"}));
  });
  EXPECT_EQ(job.device_tables().made(), 2);
}

TEST(GroupOrder, MemoryWithoutABackendIsRefused) {
  FakeJob job(1, [](GroupHost& host) {
    host.makers.nccl_available = [](std::string* why) {
      *why = "there is no driver";
      return false;
    };
  });
  ProcessGroup world = job[0].world();
  EXPECT_EQ(world.cuda_backend(), std::nullopt);
  std::vector<float> data(1);
  const auto broadcast = [&](ProcessGroup group, Device device) {
    return thrown_by(
        [&] { group.broadcast({data.data(), 1, DType::float32, device}, GroupRank{0}); });
  };
  EXPECT_EQ(broadcast(world, Device::cuda(0)),
            "invalid_argument: broadcast of group world: GPU memory cannot be used: there is no "
            "driver");
  EXPECT_EQ(broadcast(world, Device::cuda(3)),
            "invalid_argument: broadcast of group world: memory on cuda:3, and this rank's device "
            "is cuda:0; see InitOptions::device");
  EXPECT_EQ(broadcast(job[0].new_group({{0}}, {.backend = Backend::cpu}), Device::cuda(0)),
            "invalid_argument: broadcast of group of rank 0: the group was made with the backend "
            "cpu, which works on host memory only; make one with nccl or automatic for GPU memory");
  // A refusal does not fail the group.
  EXPECT_EQ(broadcast(world, Device::cpu()), "nothing");
}

TEST(GroupOrder, AGpuGroupRefusesHostMemoryButHasBarriersAndBytes) {
  FakeJob job(2, [](GroupHost& host) { host.backend = Backend::nccl; });
  EXPECT_EQ(job.tables().made(), 0);
  job.each([&](FakeRank& rank) {
    ProcessGroup world = rank.world();
    EXPECT_EQ(world.cpu_backend(), std::nullopt);
    std::vector<float> data(1);
    EXPECT_EQ(thrown_by([&] { world.broadcast(data, GroupRank{0}); }),
              "invalid_argument: broadcast of group world: the group was made with the backend "
              "nccl, which works on GPU memory only; make one with cpu or automatic for host "
              "memory");
    world.barrier();
    EXPECT_EQ(operations(job.device_tables().named("world").log(rank.me)),
              (std::vector<std::string>{"barrier 1"}));
    EXPECT_EQ(world.all_gather_bytes(rank.me == 0 ? "a" : "bc"),
              (std::vector<std::string>{"a", "bc"}));
  });
}

TEST(GroupOrder, AGroupOfOneNeedsNoBackendOrStore) {
  FakeJob job(1, [](GroupHost& host) { host.connect_store = {}; });
  ProcessGroup world = job[0].world();
  const std::vector<int16_t> in{1, 2, 3};
  std::vector<int16_t> out(3);
  const auto expect_copied = [&](const char* what) {
    EXPECT_EQ(out, in) << what;
    out.assign(3, 0);
  };
  world.barrier();
  world.monitored_barrier();
  world.all_reduce(in, out, ReduceOp::average);
  expect_copied("all_reduce");
  world.reduce(in, out, GroupRank{0}, ReduceOp::bxor);
  expect_copied("reduce");
  world.gather(in, out, GroupRank{0});
  expect_copied("gather");
  world.scatter(in, out, GroupRank{0});
  expect_copied("scatter");
  world.all_gather(in, out);
  expect_copied("all_gather");
  world.reduce_scatter(in, out);
  expect_copied("reduce_scatter");
  world.all_to_all(in, out);
  expect_copied("all_to_all");
  const std::vector<size_t> counts{3};
  world.all_to_all_v(in, counts, out, counts);
  expect_copied("all_to_all_v");
  world.gather_v(in, out, counts, GroupRank{0});
  expect_copied("gather_v");
  world.all_reduce_async(in, out).wait();
  expect_copied("all_reduce_async");
  out = in;
  world.broadcast(out, GroupRank{0});
  expect_copied("broadcast");
  EXPECT_EQ(world.all_gather_bytes("x"), std::vector<std::string>{"x"});
  const SharedMemory memory = world.allocate_shared(10000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 4096, 0U);
  EXPECT_EQ(std::string(memory.as<char>().begin(), memory.as<char>().end()),
            std::string(10000, '\0'));
}

}  // namespace
}  // namespace muster::worker::group_test
