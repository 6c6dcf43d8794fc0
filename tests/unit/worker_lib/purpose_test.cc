// Calls that are made of several operations are reported and compared by their own names.
#include "worker_lib/purpose.h"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "muster/error.h"
#include "tests/unit/worker_lib/group/fake_backend.h"
#include "worker_lib/training/helper_error.h"

namespace muster::worker::group_test {
namespace {

// Returns what the calls of two ranks over shared memory throw.
std::array<std::string, 2> quarrel(const std::function<void(ProcessGroup&)>& zero,
                                   const std::function<void(ProcessGroup&)>& one) {
  FakeJob job(2, [](GroupHost& host) {
    host.makers.cpu = make_cpu_backend;
    for (Peer& peer : host.world.peers)
      peer.pid = ::getpid();
  });
  std::array<std::string, 2> said;
  job.each([&](FakeRank& rank) {
    ProcessGroup world = rank.world();
    said[static_cast<size_t>(rank.me)] =
        thrown_by([&] { rank.me == 0 ? zero(world) : one(world); });
  });
  return said;
}

void reduce_a_byte(ProcessGroup& world) {
  std::array<uint8_t, 1> byte{1};
  world.all_reduce(Buffer(byte), ReduceOp::max);
}

void ask_to_stop(ProcessGroup& world) {
  in_the_name_of(CallPurpose::should_stop, [&] { reduce_a_byte(world); });
}

TEST(Purpose, AHelperDiffersFromTheOperationItCalls) {
  const auto said = quarrel(ask_to_stop, reduce_a_byte);
  EXPECT_NE(said[0].find("mismatch: should_stop 1 of group world: "), std::string::npos) << said[0];
  for (const std::string& text : said) {
    EXPECT_NE(text.find(" called should_stop()"), std::string::npos) << text;
    EXPECT_NE(text.find(" called all_reduce (max) of 1 uint8"), std::string::npos) << text;
  }
  EXPECT_EQ(quarrel(ask_to_stop, ask_to_stop), (std::array<std::string, 2>{"nothing", "nothing"}));
}

TEST(Purpose, CallsOfTheGroupHaveTheirPublicNames) {
  const auto said = quarrel([](ProcessGroup& world) { world.all_gather_bytes("x"); },
                            [](ProcessGroup& world) { world.split(0); });
  for (const std::string& text : said) {
    EXPECT_NE(text.find(" called all_gather_bytes()"), std::string::npos) << text;
    EXPECT_NE(text.find(" called split()"), std::string::npos) << text;
  }
}

TEST(Purpose, ACallWithEqualCountsKeepsItsName) {
  std::vector<float> data(4);
  std::vector<float> more(8);
  const auto said = quarrel(
      [&](ProcessGroup& world) {
        world.all_gather_v(ConstBuffer(data), Buffer(more), std::vector<size_t>{4, 4});
      },
      [](ProcessGroup& world) { world.barrier(); });
  EXPECT_NE(said[1].find(" called all_gather_v of 4 float32"), std::string::npos) << said[1];
}

TEST(Purpose, TheOutermostPurposeIsKept) {
  EXPECT_EQ(current_purpose(), CallPurpose::itself);
  {
    const PurposeScope outer(CallPurpose::save_checkpoint);
    const PurposeScope inner(CallPurpose::broadcast_bytes);
    EXPECT_EQ(current_purpose(), CallPurpose::save_checkpoint);
  }
  EXPECT_EQ(current_purpose(), CallPurpose::itself);
}

}  // namespace
}  // namespace muster::worker::group_test
