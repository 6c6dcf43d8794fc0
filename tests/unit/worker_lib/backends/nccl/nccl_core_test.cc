// NCCL does not stop: an abort that hangs, a call that does not return.
#include "worker_lib/backends/nccl/nccl_core.h"

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/worker_lib/backends/nccl/nccl_fake.h"
#include "tests/wait_for.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class NcclCoreTest : public NcclTest {
 protected:
  static std::shared_ptr<NcclCore> make(NcclCore::Options options) {
    const NcclApi& nccl = **nccl_library();
    NcclUniqueId id{};
    nccl.get_unique_id(&id);
    auto communicator = NcclCommunicator::join({.nccl = nccl,
                                                .gpu = gpu(0),
                                                .id = id,
                                                .rank = 0,
                                                .ranks = 1,
                                                .deadline = soon(),
                                                .interrupted = {}});
    if (!communicator) std::abort();
    options.communicator = std::move(*communicator);
    return *NcclCore::begin(std::move(options));
  }
};

TEST_F(NcclCoreTest, AnAbortThatHangsIsReportedWithTheReason) {
  fake_machine().abort_hangs = true;
  std::promise<std::string> told;
  const auto core = make({.group = "world",
                          .communicator = {},
                          .end_bound = milliseconds{100},
                          .on_stuck = [&](const std::string& why) { told.set_value(why); }});
  core->fail({ErrorCode::peer_failed, "rank 3 (node7, pid 9) died", {GlobalRank{3}}});
  EXPECT_EQ(
      told.get_future().get(),
      "muster: group world: NCCL did not stop within 0.1 s after: rank 3 (node7, pid 9) died; "
      "this process ends, so that the GPU is free for the next attempt");
  core->close();
  fake_machine().abort_hangs = false;
}

// An abort would free the communicator that the caller uses.
TEST_F(NcclCoreTest, ACallThatDoesNotReturnIsReportedAndNotAborted) {
  fake_machine().has_revoke = false;
  fake_machine().calls_hang = true;
  std::promise<std::string> told;
  const auto core =
      make({.group = "world", .communicator = {}, .on_stuck = [&](const std::string& why) {
              told.set_value(why);
            }});
  std::vector<float> data(4, 1);
  std::thread calling([&] {
    const NcclCore::Call call{OpKind::all_reduce, 0, soon()};
    const auto mark = core->launch(nullptr, call, [&](CudaStream stream) {
      NcclCommunicator& comm = core->communicator();
      comm.nccl().all_reduce(data.data(), data.data(), 4, NcclType::float32, NcclReduction::sum,
                             comm.handle(), stream);
      return Outcome<>(Done{});
    });
    EXPECT_TRUE(mark || mark.error().code == ErrorCode::peer_failed);
  });
  test::wait_for([] { return fake_machine().in_calls > 0; }, "the call");
  core->fail({ErrorCode::peer_failed, "rank 3 (node7, pid 9) died", {GlobalRank{3}}});
  EXPECT_EQ(told.get_future().get(),
            "muster: group world: a call into NCCL does not return after: rank 3 (node7, pid 9) "
            "died; this process ends, so that the GPU is free for the next attempt");
  EXPECT_EQ(fake_machine().aborts, 0);
  fake_machine().calls_hang = false;
  calling.join();
  test::wait_for([] { return fake_machine().aborts == 1; }, "the abort");
  fake_machine().has_revoke = true;
}

TEST_F(NcclCoreTest, AnAbortThatHangsEndsTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        fake_machine().abort_hangs = true;
        const auto core =
            make({.group = "world", .communicator = {}, .end_bound = milliseconds{50}});
        core->fail({ErrorCode::stopped, "the job was told to end", {}});
        test::pause_for(seconds{60}, "the end of the process comes before");
      },
      testing::ExitedWithCode(1), "NCCL did not stop within 0.05 s after: the job was told to end");
}

}  // namespace
}  // namespace muster::worker
