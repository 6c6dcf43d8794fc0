// The NCCL backend on the fake GPU (tests/fakes/fake_gpu.h), with threads as ranks, one GPU each:
// every collective against the reference, which stream each call uses, and how calls fail if a rank
// is absent, NCCL fails, or the group is aborted. Nothing here shows how a real GPU behaves.
#include "worker_lib/backends/nccl/nccl_backend.h"

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker_lib/backends/backend_ranks.h"
#include "tests/unit/worker_lib/backends/backend_reference.h"
#include "tests/unit/worker_lib/backends/nccl/nccl_fake.h"
#include "tests/wait_for.h"
#include "worker_lib/backends/nccl/nccl_core.h"

namespace muster::worker {
namespace {

// Performs the operation and waits until its result is in memory.
Outcome<> finish(GroupBackend& backend, const Operation& operation, Deadline deadline) {
  const Outcome<std::shared_ptr<WorkState>> work = backend.start(operation, deadline);
  if (!work) return tl::unexpected(work.error());
  return *(*work)->synchronize(Deadline::max());
}

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Each;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

// Declare the buffers of failing operations before the backends: streams may use them until the
// communicator is gone, which a backend's destructor waits for.
using Backends = std::vector<std::unique_ptr<GroupBackend>>;

class NcclBackendTest : public NcclTest {
 protected:
  static void give_each_its_gpu(BackendRanks& group) {
    group.adjust = [adjust = std::move(group.adjust)](GroupSetup& setup) {
      if (adjust) adjust(setup);
      setup.cuda_device = setup.members.me;
    };
  }
  static Backends make(BackendRanks& group) {
    give_each_its_gpu(group);
    return group.make(make_nccl_backend);
  }
};

GroupBackend& of(const Backends& backends, int rank) {
  return *backends[static_cast<size_t>(rank)];
}

Operation reduce_all(int rank, std::vector<float>& data, uint64_t sequence = 1) {
  Operation op{.kind = OpKind::all_reduce,
               .count = data.size(),
               .dtype = DType::float32,
               .device = Device::cuda(rank),
               .sequence = sequence};
  op.in = op.out = reinterpret_cast<std::byte*>(data.data());
  return op;
}

Transfer message(OpKind kind, int rank, std::vector<int32_t>& data, int peer) {
  return {.kind = kind,
          .data = reinterpret_cast<std::byte*>(data.data()),
          .count = data.size(),
          .dtype = DType::int32,
          .peer = peer,
          .device = Device::cuda(rank)};
}

// Performs `op` as a synchronous call of the group: on its stream, which is not awaited.
std::string perform(GroupBackend& backend, Operation op, Deadline deadline = soon()) {
  op.stream_waits = true;
  const auto work = backend.start(op, deadline);
  return work ? ending((*work)->wait(deadline)) : ending(work.error());
}

Operation barrier(uint64_t sequence) {
  return {.kind = OpKind::barrier, .sequence = sequence};
}

// ---- results

bool nccl_can(const BackendCase& one) {
  return nccl_refuses({.kind = one.kind, .dtype = one.dtype, .reduce = one.reduce}).empty();
}

// Performs every other case synchronously, on the call's stream, and the rest asynchronously.
void perform_all(const Backends& backends, int rank, const std::vector<BackendCase>& cases) {
  uint64_t sequence = 0;
  for (const BackendCase& one : cases) {
    CaseRank mine(one, rank);
    Operation op = mine.operation(++sequence);
    op.device = Device::cuda(rank);
    if (sequence % 2 == 0) {
      ASSERT_EQ(perform(of(backends, rank), op), "done") << one.text();
      ASSERT_EQ(ending(finish(of(backends, rank), barrier(++sequence), soon())), "done");
    } else {
      const auto work = of(backends, rank).start(op, soon());
      ASSERT_TRUE(work) << one.text();
      ASSERT_EQ(ending((*work)->synchronize(soon())), "done") << one.text();
      ++sequence;
    }
    ASSERT_EQ(mine.check(), "");
  }
}

TEST_F(NcclBackendTest, EveryCollectiveEqualsTheReferenceOnOneToFourRanks) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    std::vector<BackendCase> cases;
    for (const BackendCase& one : every_case(ranks, {0, 1, 7, 1000}))
      if (nccl_can(one)) cases.push_back(one);
    if (ranks > 2) cases = some_of(cases, 5);
    BackendRanks group(ranks);
    const Backends backends = make(group);
    ASSERT_FALSE(HasFailure());
    group.each([&](int rank) { perform_all(backends, rank, cases); });
    fmt::print("{} cases on {} ranks\n", cases.size(), ranks);
    fake_machine().take_log();
  }
}

TEST_F(NcclBackendTest, ABarrierReturnsOnceAllRanksHaveArrived) {
  BackendRanks group(3);
  const Backends backends = make(group);
  std::atomic<int> came{0};
  group.each([&](int rank) {
    for (int round = 1; round <= 20; ++round) {
      came += 1;
      const auto sequence = static_cast<uint64_t>(round) * 2;
      ASSERT_EQ(ending(finish(of(backends, rank), barrier(sequence), soon())), "done");
      ASSERT_GE(came.load(), round * 3);
      // A wait for an asynchronous barrier blocks the thread, too.
      const auto work = of(backends, rank).start(barrier(sequence + 1), soon());
      ASSERT_TRUE(work);
      ASSERT_EQ(ending((*work)->wait(soon())), "done");
    }
  });
}

// ---- what is called, and on which stream

TEST_F(NcclBackendTest, SynchronousCallsUseTheCallersStreamAndAsynchronousAnother) {
  BackendRanks group(1);
  std::vector<float> data(3, 1);
  const Backends backends = make(group);
  ASSERT_EQ(perform(of(backends, 0), reduce_all(0, data)), "done");
  EXPECT_THAT(fake_machine().take_log(),
              ElementsAre("all_reduce 3 type 7 op 0 on the default stream"));
  const auto work = of(backends, 0).start(reduce_all(0, data), soon());
  ASSERT_TRUE(work);
  EXPECT_THAT(fake_machine().take_log(), ElementsAre("all_reduce 3 type 7 op 0 on a made stream"));
  EXPECT_EQ(ending((*work)->synchronize(soon())), "done");
}

TEST_F(NcclBackendTest, EachOperationMakesTheRightNcclCalls) {
  struct Expected {
    OpKind kind;
    DType dtype;
    ReduceOp reduce;
    bool is_v;
    std::vector<std::string> calls;
  };
  const std::vector<Expected> table{
      // The average over one rank is its sum.
      {OpKind::all_reduce, DType::bfloat16, ReduceOp::average, false, {"all_reduce 4 type 9 op 0"}},
      {OpKind::all_reduce, DType::int8, ReduceOp::product, false, {"all_reduce 4 type 0 op 1"}},
      {OpKind::all_reduce, DType::float64, ReduceOp::max, false, {"all_reduce 4 type 8 op 2"}},
      {OpKind::reduce, DType::int64, ReduceOp::min, false, {"reduce 4 type 4 op 3"}},
      {OpKind::reduce_scatter,
       DType::float16,
       ReduceOp::sum,
       false,
       {"reduce_scatter 4 type 6 op 0"}},
      {OpKind::broadcast, DType::uint8, ReduceOp::sum, false, {"broadcast 4 type 1"}},
      {OpKind::broadcast, DType::int16, ReduceOp::sum, false, {"broadcast 8 type 0"}},
      {OpKind::all_gather, DType::int32, ReduceOp::sum, false, {"all_gather 4 type 2"}},
      {OpKind::all_gather, DType::int16, ReduceOp::sum, true, {"broadcast 8 type 0"}},
      {OpKind::gather, DType::int32, ReduceOp::sum, false, {"send 4 type 2", "recv 4 type 2"}},
      {OpKind::scatter, DType::int16, ReduceOp::sum, true, {"send 8 type 0", "recv 8 type 0"}},
      {OpKind::reduce_scatter, DType::float32, ReduceOp::sum, true, {"reduce 4 type 7 op 0"}},
      {OpKind::all_to_all,
       DType::float32,
       ReduceOp::sum,
       true,
       {"send 4 type 7", "recv 4 type 7"}}};
  BackendRanks group(1);
  const Backends backends = make(group);
  for (const Expected& expected : table) {
    std::vector<double> in(8, 1);
    std::vector<double> out(8);
    Operation op{.kind = expected.kind,
                 .in = reinterpret_cast<std::byte*>(in.data()),
                 .out = reinterpret_cast<std::byte*>(out.data()),
                 .count = 4,
                 .dtype = expected.dtype,
                 .reduce = expected.reduce,
                 .is_v = expected.is_v,
                 .device = Device::cuda(0),
                 .sequence = 1};
    if (op.is_v) op.send_counts = op.recv_counts = {4};
    ASSERT_EQ(perform(of(backends, 0), op), "done");
    std::vector<std::string> calls = fake_machine().take_log();
    EXPECT_THAT(calls, Each(EndsWith(" on the default stream")));
    for (std::string& call : calls)
      call.resize(call.find(" on "));
    EXPECT_EQ(calls, expected.calls);
    ASSERT_EQ(ending(finish(of(backends, 0), barrier(2), soon())), "done");
    fake_machine().take_log();
  }
  fmt::print("{} operations\n", table.size());
}

TEST_F(NcclBackendTest, DataInPlaceIsNotSentToItself) {
  BackendRanks group(1);
  std::vector<float> data(4, 1);
  const Backends backends = make(group);
  for (const OpKind kind : {OpKind::gather, OpKind::scatter}) {
    Operation op = reduce_all(0, data);
    op.kind = kind;
    ASSERT_EQ(ending(finish(of(backends, 0), op, soon())), "done");
  }
  EXPECT_THAT(fake_machine().take_log(), IsEmpty());
}

// Functions of the host stand for a slow kernel before the call and one after it.
TEST_F(NcclBackendTest, AnOperationRunsInTheOrderOfItsStream) {
  BackendRanks group(2);
  const Backends backends = make(group);
  for (const bool is_async : {false, true}) {
    std::promise<void> gate;
    const std::shared_future<void> opened = gate.get_future().share();
    group.each([&](int rank) {
      std::vector<float> data(4, 0);
      float seen = 0;
      std::promise<void> done;
      TestStream stream(gpu(rank));
      stream.put([&, rank] {
        opened.wait();
        std::fill(data.begin(), data.end(), static_cast<float>(rank + 1));
      });
      Operation op = reduce_all(rank, data, 1);
      op.stream = stream.handle();
      if (is_async) {
        const auto work = of(backends, rank).start(op, soon());
        ASSERT_TRUE(work);
        if (rank == 0) {
          EXPECT_EQ(ending((*work)->outcome()), "under way");
        }
        ASSERT_EQ(ending((*work)->wait(soon())), "done");  // The stream waits, not this thread.
      } else {
        ASSERT_EQ(perform(of(backends, rank), op), "done");
      }
      stream.put([&] {
        seen = data[3];
        done.set_value();
      });
      if (rank == 0) gate.set_value();
      done.get_future().wait();
      EXPECT_EQ(seen, 3);
    });
  }
}

// ---- refusals

TEST_F(NcclBackendTest, RefusesUnsupportedOperationsBeforeSendingAnything) {
  BackendRanks group(1);
  std::vector<float> data(4, 1);
  const Backends backends = make(group);
  struct Refusal {
    DType dtype;
    ReduceOp reduce;
    Device device;
    std::string why;
  };
  const std::vector<Refusal> table{{DType::int16, ReduceOp::sum, Device::cuda(0),
                                    "NCCL cannot reduce int16; use int32, or host memory"},
                                   {DType::int32, ReduceOp::band, Device::cuda(0),
                                    "NCCL does not support band; use host memory"},
                                   {DType::int64, ReduceOp::bxor, Device::cuda(0),
                                    "NCCL does not support bxor; use host memory"},
                                   {DType::float32, ReduceOp::sum, Device::cpu(),
                                    "NCCL works on GPU memory, and this is host memory"},
                                   {DType::float32, ReduceOp::sum, Device::cuda(3),
                                    "the memory is on GPU 3, and this rank's GPU is 0"}};
  for (const Refusal& refusal : table) {
    Operation op = reduce_all(0, data);
    op.dtype = refusal.dtype;
    op.reduce = refusal.reduce;
    op.device = refusal.device;
    const std::string expected = "invalid_argument: " + refusal.why;
    EXPECT_EQ(ending(finish(of(backends, 0), op, soon())), expected);
    const auto work = of(backends, 0).start(op, soon());
    ASSERT_FALSE(work);
    EXPECT_EQ(ending(work.error()), expected);
  }
  EXPECT_THAT(fake_machine().take_log(), IsEmpty());
  const auto work = of(backends, 0).start(reduce_all(0, data), soon());
  ASSERT_TRUE(work);
  EXPECT_EQ(ending((*work)->synchronize(soon())), "done");
}

TEST_F(NcclBackendTest, RefusesTagsAndAnySource) {
  BackendRanks group(2);
  const Backends backends = make(group);
  std::vector<int32_t> data(1);
  Transfer tagged = message(OpKind::send, 0, data, 1);
  tagged.tag = 3;
  EXPECT_EQ(of(backends, 0).refuses(tagged),
            "NCCL does not support tags; use tag 0, or host memory");
  EXPECT_THAT(of(backends, 0).refuses(message(OpKind::recv, 0, data, -1)),
              HasSubstr("name the sender"));
  EXPECT_EQ(of(backends, 0).refuses(message(OpKind::send, 0, data, 1)), "");
}

// ---- messages

TEST_F(NcclBackendTest, MessagesArriveInOrderAndBatchesMayBeInAnyOrder) {
  BackendRanks group(3);
  const Backends backends = make(group);
  group.each([&](int rank) {
    std::vector<std::vector<int32_t>> data(5, std::vector<int32_t>(4, -1));
    for (int i = 0; i < 5 && rank < 2; ++i) {
      std::vector<int32_t>& one = data[static_cast<size_t>(i)];
      if (rank == 0) std::fill(one.begin(), one.end(), i);
      const Outcome<int> outcome =
          of(backends, rank)
              .transfer(message(rank == 0 ? OpKind::send : OpKind::recv, rank, one, 1 - rank),
                        soon());
      ASSERT_TRUE(outcome);
      EXPECT_EQ(*outcome, 1 - rank);
    }
    std::vector<int32_t> out(6, rank);
    std::vector<int32_t> in(6, -1);
    std::vector<int32_t> none;
    const auto works = of(backends, rank)
                           .begin({message(OpKind::recv, rank, in, (rank + 2) % 3),
                                   message(OpKind::send, rank, none, (rank + 1) % 3),
                                   message(OpKind::send, rank, out, (rank + 1) % 3),
                                   message(OpKind::recv, rank, none, (rank + 2) % 3)},
                                  soon());
    ASSERT_TRUE(works);
    ASSERT_EQ(works->size(), 4u);
    for (const auto& work : *works)
      EXPECT_EQ(ending(work->synchronize(soon())), "done");
    EXPECT_EQ((*works)[0]->source(), (rank + 2) % 3);
    EXPECT_EQ(in, std::vector<int32_t>(6, (rank + 2) % 3));
    for (int i = 0; i < 5 && rank == 1; ++i)
      EXPECT_EQ(data[static_cast<size_t>(i)], std::vector<int32_t>(4, i));
  });
}

// ---- failures

TEST_F(NcclBackendTest, AnAbsentRankEndsTheCallAtItsDeadline) {
  BackendRanks group(2);
  std::promise<void> looked;
  group.adjust = [&](GroupSetup& setup) {
    setup.name_stragglers = [&](const Failure& suspected, uint64_t sequence) {
      looked.get_future().wait();
      EXPECT_TRUE(suspected.is_suspicion);
      EXPECT_EQ(fake_machine().aborts, 0) << "the others must still be stuck";
      return Failure{ErrorCode::timeout, fmt::format("rank 1 is not in {}", sequence), {{1}}};
    };
  };
  std::vector<float> data(4, 1);
  const Backends backends = make(group);
  const auto work = of(backends, 0).start(reduce_all(0, data, 7), after(milliseconds{100}));
  ASSERT_TRUE(work);
  // Its deadline may have passed, but it has no outcome before the others are asked.
  EXPECT_EQ(ending((*work)->synchronize(after(milliseconds{5}))), "under way");
  EXPECT_EQ(ending((*work)->outcome()), "under way");
  EXPECT_EQ(of(backends, 0).first_under_way(), 7U);
  looked.set_value();
  const std::string end = ending((*work)->synchronize(soon()));
  EXPECT_EQ(end, "timeout: all_reduce 7 did not finish on the GPU in time; rank 1 is not in 7");
  EXPECT_EQ(ending((*work)->wait(soon())), end);
  EXPECT_EQ(ending((*work)->outcome()), end);
  EXPECT_EQ(ending(finish(of(backends, 0), reduce_all(0, data), soon())), end);
  // The abort frees the GPU and the threads that wait for it.
  test::wait_for([] { return fake_machine().aborts == 1; }, "the abort");
  EXPECT_EQ(fake_machine().revokes, 1);
}

TEST_F(NcclBackendTest, AbortEndsWaitersWithItsReasonAndFreesTheStream) {
  BackendRanks group(2);
  std::vector<float> data(4, 1);
  const Backends backends = make(group);
  const Failure reason{ErrorCode::peer_failed, "rank 1 (node, pid 7) died", {GlobalRank{1}}};
  TestStream stream(gpu(0));
  Operation op = reduce_all(0, data);
  op.stream = stream.handle();
  ASSERT_EQ(perform(of(backends, 0), op), "done");
  std::promise<void> passed;
  stream.put([&] { passed.set_value(); });
  const auto work = of(backends, 0).start(reduce_all(0, data), soon());
  ASSERT_TRUE(work);
  std::thread aborting([&] { of(backends, 0).abort(reason); });
  EXPECT_EQ(ending((*work)->synchronize(soon())), ending(reason));
  aborting.join();
  of(backends, 0).abort({ErrorCode::stopped, "a later reason does not count"});
  passed.get_future().wait();  // What a cudaStreamSynchronize() of the program waits for.
  EXPECT_EQ(ending((*work)->wait(soon())), ending(reason));
  EXPECT_EQ(ending(finish(of(backends, 0), barrier(3), soon())), ending(reason));
}

TEST_F(NcclBackendTest, AnOperationDoneBeforeAFailureStaysDone) {
  BackendRanks group(1);
  std::vector<float> data(4, 1);
  const Backends backends = make(group);
  const auto work = of(backends, 0).start(reduce_all(0, data), soon());
  ASSERT_TRUE(work);
  ASSERT_EQ(ending((*work)->synchronize(soon())), "done");
  of(backends, 0).abort({ErrorCode::aborted, "abort() was called"});
  EXPECT_EQ(ending((*work)->outcome()), "done");
  EXPECT_EQ(ending((*work)->synchronize(soon())), "done");
}

TEST_F(NcclBackendTest, AnNcclErrorIsFoundWhileAnOperationIsUnderWay) {
  BackendRanks group(2);
  std::vector<float> data(4, 1);
  const Backends backends = make(group);
  const auto work = of(backends, 0).start(reduce_all(0, data), soon());
  ASSERT_TRUE(work);
  fake_machine().async_error = 6;
  EXPECT_EQ(
      ending((*work)->synchronize(soon())),
      "backend: NCCL failed: remote process exited or there was a network error (the fake was "
      "told to fail)");
  fake_machine().async_error = 0;
}

TEST_F(NcclBackendTest, AGpuErrorIsFoundWhileAnOperationIsUnderWay) {
  BackendRanks group(2);
  std::vector<float> data(4, 1);
  const Backends backends = make(group);
  const auto work = of(backends, 0).start(reduce_all(0, data), soon());
  ASSERT_TRUE(work);
  fake_machine().event_error = 700;
  EXPECT_THAT(ending((*work)->synchronize(soon())),
              HasSubstr("backend: cuEventQuery failed with CUDA_ERROR_FAKE (700)"));
  fake_machine().event_error = 0;
}

TEST_F(NcclBackendTest, ACallThatNcclRefusesFailsTheGroupWithNcclsReason) {
  BackendRanks group(1);
  std::vector<float> data(4, 1);
  const Backends backends = make(group);
  fake_machine().next_call_result = 5;
  const std::string end = ending(finish(of(backends, 0), reduce_all(0, data), soon()));
  EXPECT_EQ(end, "backend: NCCL failed: invalid usage (the fake was told to fail)");
  EXPECT_EQ(ending(finish(of(backends, 0), reduce_all(0, data), soon())), end);
}

// NCCL hangs so when it connects to a peer that is gone.
TEST_F(NcclBackendTest, AbortFreesACallerThatIsStuckInNccl) {
  BackendRanks group(2);
  std::vector<float> data(4, 1);
  const Backends backends = make(group);
  const Failure reason{ErrorCode::aborted, "abort() was called", {GlobalRank{0}}};
  fake_machine().calls_hang = true;
  std::thread aborting([&] {
    test::wait_for([] { return fake_machine().in_calls > 0; }, "the call");
    of(backends, 0).abort(reason);
  });
  EXPECT_EQ(ending(finish(of(backends, 0), reduce_all(0, data), soon())), ending(reason));
  aborting.join();
  fake_machine().calls_hang = false;
}

// NCCL connects within the first calls, and waits there for its peers.
TEST_F(NcclBackendTest, ACallThatIsStuckInNcclEndsAtItsDeadline) {
  BackendRanks group(2);
  std::vector<float> data(4, 1);
  const Backends backends = make(group);
  fake_machine().calls_hang = true;
  EXPECT_THAT(ending(finish(of(backends, 0), reduce_all(0, data), after(milliseconds{100}))),
              HasSubstr("timeout: all_reduce 1 did not finish on the GPU in time"));
  fake_machine().calls_hang = false;
}

TEST_F(NcclBackendTest, ACallQueuedBehindAStuckOneEndsAtItsDeadline) {
  BackendRanks group(2);
  std::vector<float> data(4, 1);
  const Backends backends = make(group);
  fake_machine().calls_hang = true;
  std::thread stuck([&] {
    EXPECT_THAT(ending(finish(of(backends, 0), reduce_all(0, data), soon())),
                HasSubstr("barrier 2"));
  });
  test::wait_for([] { return fake_machine().in_calls > 0; }, "the call");
  EXPECT_THAT(ending(finish(of(backends, 0), barrier(2), after(milliseconds{100}))),
              HasSubstr("timeout: barrier 2 did not finish on the GPU in time"));
  stuck.join();
  fake_machine().calls_hang = false;
}

// The fake counts calls on freed communicators.
TEST_F(NcclBackendTest, CallsThatRaceWithAbortNeverTouchAFreedCommunicator) {
  constexpr int kRounds = 100;
  const Failure reason{ErrorCode::aborted, "abort() was called"};
  int calls = 0;
  BackendRanks group(1);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<float> data(4, 1);
    const Backends backends = make(group);
    std::atomic<bool> begun{false};
    std::thread aborting([&] {
      while (!begun)
        std::this_thread::yield();
      of(backends, 0).abort(reason);
    });
    std::string end;
    for (uint64_t i = 1; end.empty(); ++i, ++calls) {
      begun = true;
      const std::string outcome =
          i % 2 == 0 ? perform(of(backends, 0), reduce_all(0, data, i))
                     : ending(finish(of(backends, 0), reduce_all(0, data, i), soon()));
      if (outcome != "done") end = outcome;
    }
    aborting.join();
    EXPECT_EQ(end, ending(reason));
  }
  fmt::print("{} calls in {} rounds\n", calls, kRounds);
}

TEST_F(NcclBackendTest, ADroppedGroupFinishesPendingOperations) {
  BackendRanks group(2);
  std::vector<float> data(4, 1);
  Backends backends = make(group);
  const auto work = of(backends, 0).start(reduce_all(0, data), soon());
  ASSERT_TRUE(work);
  backends[0].reset();
  EXPECT_EQ(ending((*work)->outcome()), "under way");
  std::vector<float> late(4, 2);
  ASSERT_EQ(ending(finish(of(backends, 1), reduce_all(1, late), soon())), "done");
  EXPECT_EQ(ending((*work)->synchronize(soon())), "done");
  EXPECT_EQ(data, std::vector<float>(4, 3));
  test::wait_for([] { return fake_machine().destroys == 1; }, "the end of the communicator");
  EXPECT_EQ(fake_machine().aborts, 0);
}

TEST_F(NcclBackendTest, AnIdleGroupIsDestroyedAndNotAborted) {
  BackendRanks group(2);
  Backends backends = make(group);
  std::vector<std::vector<float>> data(2, std::vector<float>(4, 1));
  group.each([&](int rank) {
    auto& mine = data[static_cast<size_t>(rank)];
    ASSERT_TRUE(finish(of(backends, rank), reduce_all(rank, mine), soon()));
    ASSERT_TRUE(finish(of(backends, rank), barrier(2), soon()));
  });
  backends.clear();
  EXPECT_EQ(fake_machine().destroys, 2);
  EXPECT_EQ(fake_machine().aborts, 0);
  EXPECT_EQ(fake_machine().communicators, 0);
}

TEST_F(NcclBackendTest, AnIdleGroupDoesNotPollTheGpu) {
  BackendRanks group(1);
  std::vector<float> data(4, 1);
  const Backends backends = make(group);
  ASSERT_TRUE(finish(of(backends, 0), reduce_all(0, data), soon()));
  ASSERT_TRUE(finish(of(backends, 0), barrier(2), soon()));
  int before = -1;
  const auto asks_nothing = [&] {
    const int now = fake_machine().queries;
    test::pause_for(milliseconds{50}, "a hundred chances for another look");
    return before == now || (before = now, false);
  };
  test::wait_for(asks_nothing, "a last look, and then no other");
}

TEST_F(NcclBackendTest, EventsAreReused) {
  BackendRanks group(1);
  std::vector<float> data(4, 0);
  const Backends backends = make(group);
  for (uint64_t i = 1; i <= 2000; ++i) {
    ASSERT_EQ(perform(of(backends, 0), reduce_all(0, data, i)), "done");
    if (i % 100 == 0) {
      ASSERT_TRUE(finish(of(backends, 0), barrier(i), soon()));
    }
  }
  EXPECT_LT(fake_machine().events, 1000);
  fmt::print("{} events for 2000 operations\n", fake_machine().events.load());
}

TEST_F(NcclBackendTest, OperationsAwaitedOnlyByTheirStreamAreWatchedToTheirEnd) {
  BackendRanks group(1);
  std::vector<float> data(4, 0);
  const Backends backends = make(group);
  for (uint64_t i = 1; i <= 2000; ++i) {
    Operation op = reduce_all(0, data, i);
    op.stream_waits = true;
    ASSERT_EQ(ending(of(backends, 0).run(op, soon())), "done");
    if (i % 100 != 0) continue;
    of(backends, 0).wait_idle();
    // At once, not when the thread that watches them polls again.
    ASSERT_TRUE(of(backends, 0).is_idle());
    ASSERT_EQ(of(backends, 0).first_under_way(), std::nullopt);
  }
  EXPECT_LT(fake_machine().events, 1000);
}

TEST_F(NcclBackendTest, OperationsAwaitedOnlyByTheirStreamEndAtTheirDeadline) {
  BackendRanks group(2);
  std::vector<float> data(4, 1);
  const Backends backends = make(group);
  Operation op = reduce_all(0, data, 7);
  op.stream_waits = true;
  ASSERT_EQ(ending(of(backends, 0).run(op, after(milliseconds{100}))), "done");
  EXPECT_FALSE(of(backends, 0).is_idle());
  EXPECT_EQ(of(backends, 0).first_under_way(), 7U);
  of(backends, 0).wait_idle();
  EXPECT_TRUE(of(backends, 0).is_idle());
  EXPECT_THAT(ending(of(backends, 0).run(op, soon())),
              testing::StartsWith("timeout: all_reduce 7 did not finish on the GPU in time"));
}

TEST_F(NcclBackendTest, OperationsCapturedIntoAGraphAreNotWatched) {
  BackendRanks group(2);
  std::vector<float> data(4, 1);
  const Backends backends = make(group);
  fake_machine().stream_is_captured = true;
  // The other rank never arrives, and the deadline passes: in a graph neither is an error.
  ASSERT_EQ(perform(of(backends, 0), reduce_all(0, data), after(milliseconds{1})), "done");
  const auto work = of(backends, 0).start(reduce_all(0, data), after(milliseconds{1}));
  ASSERT_TRUE(work);
  test::pause_for(milliseconds{50}, "its deadline passes");
  EXPECT_EQ(ending((*work)->outcome()), "under way");
  fake_machine().stream_is_captured = false;
  of(backends, 0).abort({ErrorCode::aborted, "the test is over"});
}

// ---- set-up

class NcclSetUpTest : public NcclBackendTest {
 protected:
  void TearDown() override {
    fake_machine().nobody_joins = fake_machine().split_hangs = fake_machine().same_uuid = false;
    fake_machine().init_result = 0;
    NcclBackendTest::TearDown();
  }
  // Returns what each of two ranks reports.
  static std::vector<std::string> fail_to_make(milliseconds time) {
    BackendRanks group(2);
    give_each_its_gpu(group);
    std::vector<std::string> ends(2);
    group.each([&](int rank) {
      const auto backend = make_nccl_backend(group.setup_of(rank, after(time)));
      ends[static_cast<size_t>(rank)] = backend ? "made" : ending(backend.error());
    });
    return ends;
  }
};

TEST_F(NcclSetUpTest, EndsAtItsDeadlineWhileTheRanksMeet) {
  fake_machine().nobody_joins = true;
  EXPECT_THAT(fail_to_make(milliseconds{300}),
              Each(HasSubstr("timeout: ncclCommInitRankConfig did not finish in time")));
}

TEST_F(NcclSetUpTest, EndsAtItsDeadlineWhileTheCommunicatorIsSplit) {
  fake_machine().split_hangs = true;
  EXPECT_THAT(fail_to_make(milliseconds{300}),
              Each(HasSubstr("timeout: ncclCommSplit did not finish in time")));
  fake_machine().communicators -= 2;  // NCCL frees these: it had not returned them to us.
}

TEST_F(NcclSetUpTest, ReportsTheErrorOfNccl) {
  fake_machine().init_result = 2;
  EXPECT_THAT(fail_to_make(seconds{60}),
              Each("backend: ncclCommInitRankConfig failed: unhandled system error (the fake was "
                   "told to fail)"));
}

TEST_F(NcclSetUpTest, EndsWhenAPeerDies) {
  fake_machine().nobody_joins = true;
  const Failure reason{ErrorCode::peer_failed, "rank 1 died", {GlobalRank{1}}};
  BackendRanks group(2);
  std::atomic<int> asked{0};
  group.adjust = [&](GroupSetup& setup) {
    setup.cuda_device = setup.members.me;
    setup.interrupted = [&]() -> std::optional<Failure> {
      if (++asked < 10) return std::nullopt;
      return reason;
    };
  };
  group.each([&](int rank) {
    const auto backend = make_nccl_backend(group.setup_of(rank, soon()));
    ASSERT_FALSE(backend);
    EXPECT_EQ(backend.error(), reason);
  });
}

TEST_F(NcclSetUpTest, NamesRanksThatDoNotArrive) {
  BackendRanks group(2);
  const auto backend = make_nccl_backend(group.setup_of(0, after(milliseconds{300})));
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.error().code, ErrorCode::timeout);
  EXPECT_THAT(backend.error().ranks, ElementsAre(GlobalRank{1}));
}

TEST_F(NcclSetUpTest, NamesTwoRanksThatUseTheSameGpu) {
  fake_machine().same_uuid = true;
  EXPECT_THAT(fail_to_make(seconds{60}), Each(HasSubstr("rank 0 (testhost, pid ")));
  EXPECT_THAT(fail_to_make(seconds{60}),
              Each(HasSubstr("use the same GPU (Fake GPU 1, uuid 0000")));
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  EXPECT_THAT(fail_to_make(seconds{60}), ElementsAre("made", "made"));
  ::unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
}

TEST_F(NcclSetUpTest, RefusesADeviceThatDoesNotExist) {
  BackendRanks group(1);
  GroupSetup setup = group.setup_of(0, soon());
  setup.cuda_device = 9;
  const auto backend = make_nccl_backend(std::move(setup));
  ASSERT_FALSE(backend);
  EXPECT_THAT(ending(backend.error()), HasSubstr("backend: GPU 9 was requested"));
}

TEST(NcclCard, SurvivesEncoding) {
  const NcclCard first{23007, "00ff", "NVIDIA H100 80GB HBM3", {0, 0x7f, 0xff}, "r 0"};
  const NcclCard other{21803, "", "", {}, ""};
  EXPECT_EQ(NcclCard::decode(first.encode()), first);
  EXPECT_EQ(NcclCard::decode(other.encode()), other);
}

TEST(NcclCard, RefusesMalformedBytes) {
  const std::string good = NcclCard{1, "ab", "G", {}, ""}.encode();
  for (const std::string& bytes :
       {std::string(), std::string("23007 ab 47 - -"), good + "x", good.substr(0, good.size() - 1),
        "\xff\xff\xff\xff" + good.substr(4)})
    EXPECT_EQ(NcclCard::decode(bytes), std::nullopt) << bytes;
}

TEST(NcclCards, NameRanksWithDifferentVersions) {
  Members members{{{GlobalRank{4}, "n", "host4", 1, ""}, {GlobalRank{6}, "n", "host6", 2, ""}}, 0};
  const auto why =
      compare_cards(members, {{23007, "a", "GPU", {}, ""}, {22809, "b", "GPU", {}, ""}}, false);
  ASSERT_TRUE(why);
  EXPECT_THAT(why->message, HasSubstr("rank 4 (host4, pid 1) has NCCL 2.30.7, and rank 6 (host6, "
                                      "pid 2) has 2.28.9"));
  EXPECT_THAT(why->ranks, ElementsAre(GlobalRank{6}));
  EXPECT_EQ(compare_cards(members, {{23007, "a", "", {}, ""}, {23007, "b", "", {}, ""}}, false),
            std::nullopt);
  EXPECT_EQ(compare_cards(members, {{23007, "", "", {}, ""}, {23007, "", "", {}, ""}}, false),
            std::nullopt);
}

TEST(NcclCards, MayShareAGpuIfTheirHostIdsDiffer) {
  const Members members{{{GlobalRank{0}, "n", "host", 1, ""}, {GlobalRank{1}, "n", "host", 2, ""}},
                        0};
  const auto compare = [&](const std::string& first, const std::string& second) {
    return compare_cards(members, {{23007, "a", "GPU", {}, first}, {23007, "a", "GPU", {}, second}},
                         false);
  };
  EXPECT_EQ(compare("rank0", "rank1"), std::nullopt);
  ASSERT_TRUE(compare("", ""));
  EXPECT_THAT(compare("", "")->message, HasSubstr("an NCCL_HOSTID of its own"));
  EXPECT_TRUE(compare("same", "same"));
}

TEST(NcclVariables, AreRefusedIfTheyOverrideOurConfiguration) {
  const auto refused = [](const char* value) {
    return refuse_nccl_variables([value](const char* name) {
      return std::string_view(name) == "NCCL_COMM_BLOCKING" ? value : nullptr;
    });
  };
  EXPECT_EQ(refused(nullptr), "");
  EXPECT_THAT(refused("0"), HasSubstr("NCCL_COMM_BLOCKING is set to \"0\": unset it"));
  EXPECT_THAT(refused("1"), HasSubstr("NCCL_COMM_BLOCKING is set to \"1\": unset it"));
}

}  // namespace
}  // namespace muster::worker
