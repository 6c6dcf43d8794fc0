// What a rank's ring shows of its collectives and messages. Threads as ranks, with real groups, on
// shared memory if the kinds matter, else on the fake backends of fake_backend.h.
#include <array>
#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "muster/error.h"
#include "rendezvous/ring/call_rules.h"
#include "tests/unit/worker_lib/group/fake_backend.h"
#include "tests/unit/worker_lib/recorder/recorded_ranks.h"
#include "worker_lib/recorder/ring_calls.h"

namespace muster::worker::recorder_test {
namespace {

using group_test::FakeJob;
using group_test::FakeRank;
using group_test::thrown_by;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Two ranks on shared memory.
class OnSharedMemory {
 public:
  RecordedRanks recorded{2};
  FakeJob job{2, [this](GroupHost& host) {
                recorded.adjust()(host);
                host.makers.cpu = make_cpu_backend;
                for (Peer& peer : host.world.peers)
                  peer.pid = ::getpid();
              }};
};

TEST(RingCalls, TypesAndReductionsKeepTheirNames) {
  for (auto dtype = DType::int8; dtype <= DType::float64; dtype = DType(int(dtype) + 1)) {
    const ring::Call call = ring_call_of(Operation{.kind = OpKind::gather, .dtype = dtype}, true);
    EXPECT_STREQ(ring::name_of(call.type), name_of(dtype));
  }
  for (auto op = ReduceOp::sum; op <= ReduceOp::bxor; op = ReduceOp(int(op) + 1)) {
    const ring::Call call = ring_call_of(Operation{.kind = OpKind::reduce, .reduce = op}, true);
    EXPECT_STREQ(ring::name_of(call.reduction), name_of(op));
  }
}

void call_every_kind(ProcessGroup world) {
  const auto me = static_cast<size_t>(world.rank().value);
  std::vector<float> two(2);
  std::vector<float> four(4);
  std::vector<float> swapped(4);
  std::vector<double> one(1);
  std::vector<uint8_t> bytes(5);
  const std::array<size_t, 2> counts{1, 4};
  const std::array<size_t, 2> uneven{1, me == 0 ? size_t{3} : size_t{2}};
  const std::array<size_t, 2> back{me == 0 ? size_t{1} : size_t{3},
                                   me == 0 ? size_t{1} : size_t{2}};
  std::vector<uint8_t> sent(uneven[0] + uneven[1]);
  std::vector<uint8_t> received(back[0] + back[1]);
  std::vector<uint8_t> own(counts[me]);
  world.barrier();
  world.broadcast(two, GroupRank{1});
  world.reduce(one, GroupRank{0}, ReduceOp::max);
  world.all_reduce(four, ReduceOp::average);
  world.gather(two, four, GroupRank{1});
  world.all_gather(two, four);
  world.all_gather_v(own, bytes, counts);
  world.scatter(four, two, GroupRank{0});
  world.reduce_scatter(four, two, ReduceOp::min);
  world.all_to_all(four, swapped);
  world.all_to_all_v(sent, uneven, received, back);
  static_cast<void>(world.allocate_shared(4096));
}

TEST(RecordedCalls, RecordsEveryKindAsItWasCalled) {
  OnSharedMemory two;
  two.job.each([](FakeRank& rank) { call_every_kind(rank.world()); });
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(call_texts(two.recorded[rank], "world"),
                ElementsAre("1 barrier", "2 broadcast of 2 float32 from rank 1 of the group",
                            "3 reduce (max) of 1 float64 to rank 0 of the group",
                            "4 all_reduce (average) of 4 float32",
                            "5 gather of 2 float32 to rank 1 of the group",
                            "6 all_gather of 2 float32", "7 all_gather of uint8 in several parts",
                            "8 scatter of 2 float32 from rank 0 of the group",
                            "9 reduce_scatter (min) of 2 float32", "10 all_to_all of 2 float32",
                            "11 all_to_all of uint8 in several parts", "12 all_gather of 1 int64",
                            "13 allocate_shared of 4096 bytes"));
    const auto records = records_of(two.recorded[rank], "world");
    EXPECT_EQ(records[6].call.count, rank == 0 ? 1u : 4u) << "its own part";
    EXPECT_EQ(records[10].call.count, rank == 0 ? 4u : 3u) << "all that it sends";
  }
  EXPECT_EQ(group_in(two.recorded[0], "world").hash, group_in(two.recorded[1], "world").hash);
}

TEST(RecordedCalls, ACallIsAwaitedUnlessTheProgramBeganIt) {
  RecordedRanks recorded(2);
  FakeJob job(2, recorded.adjust());
  job.each([](FakeRank& rank) {
    ProcessGroup world = rank.world();
    Work begun = world.barrier_async();
    world.barrier();  // Takes its turn behind the first.
    begun.wait();
  });
  EXPECT_THAT(call_texts(recorded[0], "world"), ElementsAre("1 barrier, begun", "2 barrier"));
}

TEST(RecordedCalls, ACallIsPendingWhileItIsInFlight) {
  RecordedRanks recorded(2);
  FakeJob job(2, recorded.adjust());
  std::thread first([&] { job[0].world().barrier(); });
  job.tables().named("world").wait_inside(1, 1);
  EXPECT_THAT(call_texts(recorded[0], "world"), ElementsAre("1 barrier, pending"));
  const SeenGroup waiting = group_in(recorded[0], "world");
  EXPECT_EQ(waiting.called, 1u);
  EXPECT_EQ(waiting.completed, 0u);
  EXPECT_EQ(group_in(recorded[1], "world").called, 0u);
  job[1].world().barrier();
  first.join();
  EXPECT_EQ(group_in(recorded[0], "world").completed, 1u);
}

TEST(RecordedCalls, ACallTheBackendRefusesIsWithdrawnAndItsNumberReused) {
  RecordedRanks recorded(2);
  FakeJob job(2, recorded.adjust());
  job.tables().named("world").fail_at(2, {ErrorCode::invalid_argument, "not this one"});
  const uint64_t before = [&] {
    job.each([](FakeRank& rank) { rank.world().barrier(); });
    return group_in(recorded[0], "world").hash;
  }();
  job.each([](FakeRank& rank) {
    std::vector<int64_t> data(3);
    EXPECT_THAT(thrown_by([&] { rank.world().broadcast(data, GroupRank{0}); }),
                HasSubstr("not this one"));
  });
  EXPECT_THAT(
      call_texts(recorded[0], "world"),
      ElementsAre("1 barrier", "2 broadcast of 3 int64 from rank 0 of the group, withdrawn"));
  EXPECT_EQ(group_in(recorded[0], "world").called, 1u);
  EXPECT_EQ(group_in(recorded[0], "world").hash, before);
  EXPECT_EQ(failure_text(recorded[0]), "");
}

TEST(RecordedCalls, AnArgumentRefusedAtOnceLeavesNoTrace) {
  RecordedRanks recorded(2);
  FakeJob job(2, recorded.adjust());
  std::vector<int64_t> data(3);
  EXPECT_THAT(thrown_by([&] { job[0].world().broadcast(data, GroupRank{7}); }),
              HasSubstr("root 7"));
  EXPECT_THAT(thrown_by([&] { job[0].world().send(data, GroupRank{0}); }), HasSubstr("peer 0"));
  EXPECT_THAT(call_texts(recorded[0], "world"), IsEmpty());
}

TEST(RecordedCalls, AFailureIsMarkedAndItsMessageKept) {
  RecordedRanks recorded(2);
  FakeJob job(2, recorded.adjust());
  job.tables().named("world").fail_at(1, {ErrorCode::timeout, "rank 1 did not come", {{1}}});
  job.each([](FakeRank& rank) {
    EXPECT_NE(thrown_by([&] { rank.world().barrier(); }), "nothing");
    EXPECT_NE(thrown_by([&] { rank.world().barrier(); }), "nothing");  // Refused: not recorded.
  });
  EXPECT_THAT(call_texts(recorded[1], "world"), ElementsAre("1 barrier, failed"));
  EXPECT_EQ(failure_text(recorded[1]), "barrier 1 of group world: rank 1 did not come");
  EXPECT_THAT(group_texts(recorded[1]), ElementsAre("world (world) of ranks 0-1, 1 of 2: failed"));
}

TEST(RecordedCalls, MessagesAreCountedByPeerAndDirection) {
  RecordedRanks recorded(3);
  FakeJob job(3, recorded.adjust());
  job.each([](FakeRank& rank) {
    ProcessGroup world = rank.world();
    std::vector<int64_t> data(2);
    if (rank.me == 0) {
      world.send(data, GroupRank{1}, 7);
      world.send(data, GroupRank{1});
    } else if (rank.me == 1) {
      world.recv(data, GroupRank{0}, 7);
      world.recv_any(data);
    }
  });
  EXPECT_THAT(message_counts(recorded[0]), ElementsAre("send to 1: 2 called, 2 completed"));
  EXPECT_THAT(message_counts(recorded[1]), ElementsAre("recv from -1: 1 called, 1 completed",
                                                       "recv from 0: 1 called, 1 completed"));
  EXPECT_THAT(call_texts(recorded[0], "world"),
              ElementsAre("1 send of 2 int64 to rank 1 of the group, tag 7",
                          "2 send of 2 int64 to rank 1 of the group"));
  EXPECT_THAT(call_texts(recorded[1], "world"),
              ElementsAre("1 recv of 2 int64 from rank 0 of the group, tag 7",
                          "1 recv of 2 int64 from any rank of the group"));
  EXPECT_EQ(group_in(recorded[0], "world").called, 0u) << "messages are no collectives";
}

TEST(RecordedCalls, ABegunMessageEndsWhenTheProgramSeesItsEnd) {
  RecordedRanks recorded(2);
  FakeJob job(2, recorded.adjust());
  std::vector<int64_t> in(1);
  Work receiving = job[0].world().irecv(in, GroupRank{1});
  EXPECT_THAT(call_texts(recorded[0], "world"),
              ElementsAre("1 recv of 1 int64 from rank 1 of the group, begun, pending"));
  EXPECT_FALSE(receiving.is_completed());
  EXPECT_THAT(message_counts(recorded[0]), ElementsAre("recv from 1: 1 called, 0 completed"));
  const std::vector<int64_t> out(1);
  job[1].world().isend(out, GroupRank{0}).wait();
  receiving.wait();
  receiving.wait();  // Counted once.
  EXPECT_TRUE(receiving.is_completed());
  EXPECT_THAT(call_texts(recorded[0], "world"),
              ElementsAre("1 recv of 1 int64 from rank 1 of the group, begun"));
  EXPECT_THAT(message_counts(recorded[0]), ElementsAre("recv from 1: 1 called, 1 completed"));
  EXPECT_THAT(message_counts(recorded[1]), ElementsAre("send to 0: 1 called, 1 completed"));
}

TEST(RecordedCalls, EachMessageOfABatchIsRecorded) {
  RecordedRanks recorded(2);
  FakeJob job(2, recorded.adjust());
  job.each([](FakeRank& rank) {
    std::vector<int64_t> in(1);
    std::vector<int64_t> out(1);
    const GroupRank peer{1 - rank.me};
    const std::array ops{P2POp::send(out, peer), P2POp::recv(in, peer)};
    for (Work work : rank.world().batch_isend_irecv(ops)) {
      while (!work.is_completed())
        std::this_thread::yield();
    }
  });
  EXPECT_THAT(message_counts(recorded[0]), ElementsAre("recv from 1: 1 called, 1 completed",
                                                       "send to 1: 1 called, 1 completed"));
}

TEST(RecordedCalls, AMessageThatFailsIsMarked) {
  RecordedRanks recorded(2);
  FakeJob job(2, recorded.adjust());
  std::vector<int64_t> data(1);
  const CallOptions soon{.timeout = std::chrono::milliseconds(1)};
  EXPECT_NE(thrown_by([&] { job[0].world().recv(data, GroupRank{1}, 0, soon); }), "nothing");
  EXPECT_THAT(call_texts(recorded[0], "world"),
              ElementsAre("1 recv of 1 int64 from rank 1 of the group, failed"));
  EXPECT_THAT(failure_text(recorded[0]), HasSubstr("recv from rank 1"));
}

TEST(RecordedCalls, MonitoredBarriersHaveOrdinalsOfTheirOwn) {
  RecordedRanks recorded(2);
  FakeJob job(2, recorded.adjust());
  job.each([](FakeRank& rank) {
    ProcessGroup world = rank.world();
    world.barrier();
    world.monitored_barrier();
    const CallOptions soon{.timeout = std::chrono::milliseconds(1)};
    if (rank.me == 1) return;
    EXPECT_NE(thrown_by([&] { world.monitored_barrier(soon); }), "nothing");
  });
  EXPECT_THAT(group_texts(recorded[0]),
              ElementsAre("world (world) of ranks 0-1, 0 of 2: ready",
                          "world/monitored (world) of ranks 0-1, 0 of 2: ready"));
  EXPECT_THAT(call_texts(recorded[0], "world/monitored"),
              ElementsAre("1 monitored_barrier", "2 monitored_barrier, failed"));
  EXPECT_THAT(call_texts(recorded[1], "world/monitored"), ElementsAre("1 monitored_barrier"));
  EXPECT_EQ(failure_text(recorded[0]), "") << "the group goes on";
}

// ---- on a device

Buffer on_device(std::vector<int64_t>& data) {
  return {data.data(), data.size(), DType::int64, Device::cuda(0)};
}

TEST(RecordedCalls, DeviceCallsHaveALaneWithLateCompletion) {
  RecordedRanks recorded(2);
  FakeJob job(2, recorded.adjust());
  job.each([](FakeRank& rank) {
    std::vector<int64_t> data(2);
    rank.world().broadcast(on_device(data), GroupRank{0});
  });
  const SeenGroup launched = group_in(recorded[0], "world/cuda");
  EXPECT_EQ(launched.text, "world/cuda (world (cuda)) of ranks 0-1, 0 of 2: ready");
  EXPECT_TRUE(launched.completion_is_late);
  EXPECT_FALSE(group_in(recorded[0], "world").completion_is_late);
  EXPECT_EQ(launched.launched, 1u);
  EXPECT_EQ(launched.completed, 0u);
  EXPECT_THAT(call_texts(recorded[0], "world/cuda"),
              ElementsAre("1 broadcast of 2 int64 from rank 0 of the group, begun, pending"));
  job.each([](FakeRank& rank) {
    std::vector<int64_t> data(2);
    rank.world().broadcast(on_device(data), GroupRank{1});  // Notices that the first is over.
  });
  EXPECT_THAT(call_texts(recorded[0], "world/cuda"),
              ElementsAre("1 broadcast of 2 int64 from rank 0 of the group, begun",
                          "2 broadcast of 2 int64 from rank 1 of the group, begun, pending"));
}

TEST(RecordedCalls, AHostWaitForADeviceCallEndsIt) {
  RecordedRanks recorded(2);
  FakeJob job(2, recorded.adjust());
  job.each([](FakeRank& rank) {
    std::vector<int64_t> data(2);
    rank.world().broadcast_async(on_device(data), GroupRank{0}).synchronize();
  });
  EXPECT_EQ(group_in(recorded[0], "world/cuda").completed, 1u);
  EXPECT_THAT(call_texts(recorded[0], "world/cuda"),
              ElementsAre("1 broadcast of 2 int64 from rank 0 of the group, begun"));
}

TEST(RecordedCalls, ADeviceBarrierIsAwaited) {
  RecordedRanks recorded(2);
  FakeJob job(2, [&](GroupHost& host) {
    recorded.adjust()(host);
    host.backend = Backend::nccl;
  });
  job.each([](FakeRank& rank) { rank.world().barrier(); });
  EXPECT_THAT(call_texts(recorded[0], "world/cuda"), ElementsAre("1 barrier"));
  EXPECT_EQ(group_in(recorded[0], "world/cuda").completed, 1u);
}

TEST(RecordedCalls, ADeviceMessageStaysPendingOnceItIsOnItsStream) {
  RecordedRanks recorded(2);
  FakeJob job(2, recorded.adjust());
  job.each([](FakeRank& rank) {
    std::vector<int64_t> data(2);
    const GroupRank peer{1 - rank.me};
    rank.me == 0 ? rank.world().send(on_device(data), peer)
                 : rank.world().recv(on_device(data), peer);
  });
  EXPECT_THAT(call_texts(recorded[0], "world/cuda"),
              ElementsAre("1 send of 2 int64 to rank 1 of the group, begun, pending"));
  EXPECT_THAT(message_counts(recorded[1]), ElementsAre("recv from 0: 1 called, 0 completed"));
}

TEST(RecordedCalls, CallsWorkWithoutARecorder) {
  FakeJob job(2);
  job.each([](FakeRank& rank) {
    std::vector<int64_t> data(2);
    rank.world().broadcast(data, GroupRank{0});
    rank.world().broadcast(on_device(data), GroupRank{0});
    rank.world().monitored_barrier();
  });
}

}  // namespace
}  // namespace muster::worker::recorder_test
