// The built plugin under a host that calls it as NCCL does, each in its own process, and what an
// agent then reads from the ring.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/hang/records_text.h"
#include "agent/hang/ring_digest.h"
#include "agent/hang/ring_reader.h"
#include "tests/fakes/fake_nccl_host.h"
#include "tests/unit/rendezvous/ring/ring_harness.h"

namespace muster::nccl {
namespace {

using Lines = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

constexpr const char* kPlugin = MUSTER_NCCL_PLUGIN;
constexpr const char* kSecond = MUSTER_SECOND_PROFILER;
constexpr const char* kOldSecond = MUSTER_OLD_PROFILER;
constexpr int kWorld = 4;
constexpr int kOwnRank = 1;
constexpr uint64_t kHash = 0xab;

using Program = std::function<void(FakeNccl&)>;

// A worker's process with a ring, in which NCCL loads the plugin.
class HostProcess {
 public:
  explicit HostProcess(Variables variables = {}) : variables_(std::move(variables)) {
    variables_.try_emplace("MUSTER_RECORD_FD", ring_.text());
    variables_.try_emplace("MUSTER_NCCL_PROFILER_CHAIN", "none");
    variables_["WORLD_SIZE"] = std::to_string(kWorld);
    std::filesystem::remove(log_);
    variables_["SECOND_LOG"] = log_;
  }

  // Returns 0 if all is well in the process.
  int run(int version, const Program& program, int nccl = 0) {
    ring::TestChild child([&] {
      for (const auto& [name, value] : variables_)
        setenv(name.c_str(), value.c_str(), 1);
      FakeNccl host(kPlugin, version, nccl);
      if (!host.is_loaded()) return 2;
      program(host);
      return testing::Test::HasFailure() || host.handles_left() != 0 ? 3 : 0;
    });
    return child.wait();
  }

  RecordedState state() const {
    const auto state = reader_.state();
    return state ? *state : RecordedState();
  }
  // "1 all_reduce of 1000 float32"
  Lines calls() const {
    Lines lines;
    for (const RecordedCall& call : reader_.calls(100))
      lines.push_back(fmt::format("{} {}", call.ordinal, describe(call.call)));
    return lines;
  }
  // What the second profiler saw.
  Lines seen() const {
    Lines lines;
    std::ifstream file(log_);
    for (std::string line; std::getline(file, line);)
      lines.push_back(line);
    return lines;
  }
  ring::TestRing& ring() { return ring_; }

 private:
  ring::TestRing ring_;
  RingReader reader_ = RingReader::open({ring_.fd(), ring::kTestNonce}).value();
  Variables variables_;
  const std::string log_ = testing::TempDir() + "nccl_plugin_test." + std::to_string(getpid());
};

// Makes every kind of call.
void make_calls(FakeNccl& host, FakeNccl::Communicator& one) {
  host.call(one, {{}});
  host.call(one, {{.function = "Broadcast", .count = 10, .datatype = "ncclInt64", .root = 2}});
  host.call(one, {{.function = "AllGather", .count = 5, .datatype = "ncclBfloat16"},
                  {.function = "ReduceScatter", .count = 7, .datatype = "ncclFloat16"}});
  host.call(one, {{.function = "Reduce", .count = 9, .datatype = "ncclFloat64", .root = 3}});
  host.call(one, {{.function = "Send", .count = 3, .root = 2},
                  {.function = "Recv", .count = 4, .root = 0}});
  host.call(one, {{.function = "Send", .count = 3, .root = 2}});
}

Lines expected_calls(int version) {
  // Before version 5 NCCL reports these in bytes.
  const bool in_bytes = version < 5;
  return {"1 all_reduce of 1000 float32",
          in_bytes ? "2 broadcast of 80 int8 from rank 2 of the group"
                   : "2 broadcast of 10 int64 from rank 2 of the group",
          in_bytes ? "3 all_gather of 10 int8" : "3 all_gather of 5 bfloat16",
          "4 reduce_scatter of 7 float16",
          "5 reduce of 9 float64 to rank 3 of the group",
          "1 send of 3 float32 to rank 2 of the group",
          "1 recv of 4 float32 from rank 0 of the group",
          "2 send of 3 float32 to rank 2 of the group"};
}

void expect_group(const RecordedState& state) {
  ASSERT_EQ(state.groups.size(), 1U);
  const RecordedGroup& group = state.groups[0];
  EXPECT_EQ(group.id, "nccl-00000000000000ab");
  EXPECT_EQ(group.name, "tp");
  EXPECT_EQ(group.size, kWorld);
  EXPECT_EQ(group.own_rank, kOwnRank);
  EXPECT_EQ(group.ranks, "");
  EXPECT_TRUE(group.is_on_device);
  EXPECT_FALSE(group.calls_are_unknown);
  EXPECT_EQ(group.called, 5U);
  EXPECT_EQ(group.started, 0U);
  EXPECT_EQ(group.completed, 0U);
}

void expect_messages(const RecordedState& state) {
  Lines lines;
  for (const RecordedMessages& one : state.messages)
    lines.push_back(fmt::format("{} {} {}", one.is_recv ? "recv" : "send", one.peer, one.called));
  std::ranges::sort(lines);
  EXPECT_EQ(lines, (Lines{"recv 0 1", "send 2 2"}));
}

const auto kMakesCalls = [](FakeNccl& host) {
  const auto one = host.open("tp", kHash, kWorld, kOwnRank);
  make_calls(host, *one);
};

class NcclPlugin : public testing::TestWithParam<int> {
 protected:
  int version() const { return GetParam(); }
};

TEST_P(NcclPlugin, RecordsEveryKindOfCall) {
  HostProcess process;
  ASSERT_EQ(process.run(version(), kMakesCalls), 0);
  const RecordedState state = process.state();
  EXPECT_EQ(state.source, ring::Source::nccl_plugin);
  EXPECT_EQ(state.garbage, 0U);
  expect_group(state);
  expect_messages(state);
  EXPECT_EQ(process.calls(), expected_calls(version()));
}

TEST_P(NcclPlugin, RecordsTheSameWithAChainedProfilerThatGetsItsEvents) {
  HostProcess process(
      {{"MUSTER_NCCL_PROFILER_CHAIN", kSecond}, {"SECOND_MASK", std::to_string(kColl | kProxyOp)}});
  ASSERT_EQ(process.run(version(), kMakesCalls), 0);
  expect_group(process.state());
  expect_messages(process.state());
  EXPECT_EQ(process.calls(), expected_calls(version()));
  const Lines seen = process.seen();
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen[0], "init");
  EXPECT_EQ(std::ranges::count(seen, "a strange handle"), 0);
  // As NCCL would begin them for a mask of Coll and ProxyOp alone.
  const std::string parent = version() < 5 ? "1" : "512";
  EXPECT_EQ(std::ranges::count(seen, "start 2 in " + parent), 5);
  EXPECT_EQ(std::ranges::count(seen, "stop 2"), 5);
  EXPECT_EQ(std::ranges::count(seen, "start 512 in 256"), version() < 5 ? 0 : 5);
  EXPECT_EQ(std::ranges::count(seen, "start 2048 in 256"), 0);
}

TEST_P(NcclPlugin, ServesAChainedProfilerWithoutRecording) {
  HostProcess process({{"MUSTER_RECORD_FD", "999:1"},
                       {"MUSTER_NCCL_PROFILER_CHAIN", kSecond},
                       {"SECOND_MASK", std::to_string(kColl)}});
  EXPECT_EQ(process.run(version(),
                        [](FakeNccl& host) {
                          const auto one = host.open("tp", kHash, kWorld, kOwnRank);
                          EXPECT_EQ(host.mask(), static_cast<int>(kColl));
                          make_calls(host, *one);
                          host.close(*one);
                        }),
            0);
  EXPECT_EQ(std::ranges::count(process.seen(), "stop 2"), 5);
  EXPECT_EQ(process.seen().back(), "finalize");
  EXPECT_TRUE(process.calls().empty());
}

TEST_P(NcclPlugin, AsksForNothingWithoutARing) {
  HostProcess process(Variables{{"MUSTER_RECORD_FD", "999:1"}});
  EXPECT_EQ(process.run(version(),
                        [](FakeNccl& host) {
                          const auto one = host.open("tp", kHash, kWorld, kOwnRank);
                          EXPECT_EQ(host.mask(), 0);
                          make_calls(host, *one);
                          host.close(*one);
                        }),
            0);
}

TEST_P(NcclPlugin, ReportsUnknownCallsOnceAGraphRepeatsThem) {
  HostProcess process;
  ASSERT_EQ(process.run(version(),
                        [](FakeNccl& host) {
                          const auto one = host.open("tp", kHash, kWorld, kOwnRank);
                          host.call(*one, {{}});
                          host.call(*one, {{.is_captured = true}, {.is_captured = true}});
                          host.replay(*one);
                        }),
            0);
  const RecordedState state = process.state();
  ASSERT_EQ(state.groups.size(), 1U);
  EXPECT_TRUE(state.groups[0].calls_are_unknown);
  EXPECT_TRUE(hang::digest_of(0, state, {}, Instant{}).groups.empty());
}

// NCCL reports messages that need a proxy with each repetition.
TEST_P(NcclPlugin, ReportsUnknownCallsOnceAGraphRepeatsMessages) {
  HostProcess process;
  ASSERT_EQ(process.run(version(),
                        [](FakeNccl& host) {
                          const auto one = host.open("tp", kHash, kWorld, kOwnRank);
                          host.call(*one, {{.function = "Send", .root = 2, .is_captured = true}});
                          host.replay(*one);
                          host.replay(*one);
                        }),
            0);
  EXPECT_TRUE(process.state().groups.at(0).calls_are_unknown);
}

// A profiler that saw an event here would count a call that the rank has not made.
TEST_P(NcclPlugin, BeginsNoEventsWhileACommunicatorIsCreated) {
  HostProcess process({{"MUSTER_NCCL_PROFILER_CHAIN", kSecond}, {"SECOND_MASK", "2"}});
  ASSERT_EQ(process.run(version(),
                        [](FakeNccl& host) {
                          host.open("dp", kHash, kWorld, kOwnRank);
                          host.open("tp", kHash + 1, kWorld, kOwnRank);
                        }),
            0);
  EXPECT_EQ(process.seen(), (Lines{"init", "init of one more"}));
}

TEST_P(NcclPlugin, EndsAnEventOnceIfItIsStoppedTwice) {
  HostProcess process(
      {{"MUSTER_NCCL_PROFILER_CHAIN", kSecond}, {"SECOND_MASK", std::to_string(kCollApi | kColl)}});
  ASSERT_EQ(process.run(version(),
                        [](FakeNccl& host) {
                          const auto one = host.open("tp", kHash, kWorld, kOwnRank);
                          host.call(*one, {{}});
                          host.stop_last_call_again();
                        }),
            0);
  EXPECT_EQ(std::ranges::count(process.seen(), "stop 256"), version() < 5 ? 0 : 1);
}

TEST_P(NcclPlugin, ReportsADestroyedCommunicatorAsClosed) {
  HostProcess process;
  ASSERT_EQ(process.run(version(),
                        [](FakeNccl& host) {
                          for (int i = 0; i < 3; ++i) {
                            const auto one = host.open("", kHash + i, kWorld, kOwnRank);
                            host.call(*one, {{}});
                            if (i != 1) host.close(*one);
                          }
                        }),
            0);
  const RecordedState state = process.state();
  ASSERT_EQ(state.groups.size(), 3U);
  EXPECT_EQ(state.groups[0].state, ring::GroupState::closed);
  EXPECT_EQ(state.groups[1].state, ring::GroupState::ready);
  EXPECT_EQ(state.groups[1].name, "nccl-00000000000000ac");
  EXPECT_EQ(state.groups[2].state, ring::GroupState::closed);
}

TEST_P(NcclPlugin, SharesTheRingWithPythonsHookInEitherOrder) {
  for (const bool is_first : {true, false}) {
    HostProcess process;
    const std::string record_fd = process.ring().text();
    const auto attach_hook = [&] {
      std::string why;
      auto hook = ring::RingWriter::attach(record_fd, ring::Source::python_hook, why).release();
      ASSERT_NE(hook, nullptr) << why;
      hook->set_state(hook->open_group({.id = "gloo", .size = 2, .own_rank = 0}),
                      ring::GroupState::ready);
    };
    EXPECT_EQ(process.run(version(),
                          [&](FakeNccl& host) {
                            if (is_first) attach_hook();
                            const auto one = host.open("tp", kHash, kWorld, kOwnRank);
                            make_calls(host, *one);
                            if (!is_first) attach_hook();
                          }),
              0);
    EXPECT_EQ(process.calls(), expected_calls(version()));
    EXPECT_EQ(process.state().groups.size(), 2U);
    EXPECT_EQ(process.state().source,
              is_first ? ring::Source::python_hook : ring::Source::nccl_plugin);
  }
}

TEST_P(NcclPlugin, LeavesTheRingToMustersOwnLibrary) {
  HostProcess process;
  EXPECT_EQ(process.run(version(),
                        [&](FakeNccl& host) {
                          const auto library = process.ring().attach();
                          const auto one = host.open("tp", kHash, kWorld, kOwnRank);
                          EXPECT_EQ(host.mask(), 0);
                        }),
            0);
}

TEST_P(NcclPlugin, RecordsKernelsIfAskedAndTheVersionAllows) {
  HostProcess process(Variables{{"MUSTER_RECORD_KERNELS", "1"}});
  ASSERT_EQ(process.run(version(),
                        [](FakeNccl& host) {
                          const auto one = host.open("tp", kHash, kWorld, kOwnRank);
                          for (int i = 0; i < 2; ++i) {
                            host.call(*one, {{}});
                            host.start_kernels(*one);
                            if (i == 0) host.stop_kernels();
                          }
                          _exit(0);
                        }),
            0);
  const bool sees = version() >= 4;
  const RecordedGroup group = process.state().groups.at(0);
  EXPECT_EQ(group.started, sees ? 2U : 0U);
  EXPECT_EQ(group.completed, sees ? 1U : 0U);
  const auto digest = hang::digest_of(0, process.state(), {}, Instant{});
  EXPECT_EQ(digest.groups.at(0).completion_is_unseen, !sees);
}

// NCCL does not report how many channels CollNet's kernels have, so their ends cannot be counted.
TEST_P(NcclPlugin, RecordsNoKernelsWithoutAChannelCount) {
  HostProcess process(Variables{{"MUSTER_RECORD_KERNELS", "1"}});
  ASSERT_EQ(process.run(version(),
                        [](FakeNccl& host) {
                          const auto one = host.open("tp", kHash, kWorld, kOwnRank);
                          host.call(*one, {{.channels = 0}});
                          host.start_kernels(*one);
                          host.stop_kernels();
                        }),
            0);
  EXPECT_EQ(process.state().groups.at(0).started, 0U);
  const auto digest = hang::digest_of(0, process.state(), {}, Instant{});
  EXPECT_TRUE(digest.groups.at(0).completion_is_unseen);
}

TEST_P(NcclPlugin, ReportsOnceWhyItRecordsNothing) {
  const std::string words = testing::TempDir() + "nccl_plugin_words." + std::to_string(getpid());
  HostProcess process(Variables{{"MUSTER_RECORD_FD", "999:1"}, {"RANK", "3"}});
  ASSERT_EQ(process.run(version(),
                        [&](FakeNccl& host) {
                          ASSERT_NE(std::freopen(words.c_str(), "w", stderr), nullptr);
                          std::setvbuf(stderr, nullptr, _IONBF, 0);
                          host.open("tp", kHash, kWorld, kOwnRank);
                          host.open("dp", kHash + 1, kWorld, kOwnRank);
                        }),
            0);
  std::ifstream file(words);
  const std::string said(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(said, testing::StartsWith("muster: rank 3 records no calls of NCCL, so a hang is not "
                                        "explained: "));
  EXPECT_EQ(std::ranges::count(said, '\n'), 1);
  std::filesystem::remove(words);
}

INSTANTIATE_TEST_SUITE_P(Versions, NcclPlugin, testing::Range(3, 8),
                         [](const auto& one) { return fmt::format("v{}", one.param); });

int mask_after_init(const Variables& variables, int version, int nccl) {
  HostProcess process(variables);
  int mask = -1;
  const int code = process.run(
      version,
      [](FakeNccl& host) {
        host.open("tp", kHash, kWorld, kOwnRank);
        _exit((static_cast<uint64_t>(host.mask()) & kKernelChannel) != 0 ? 10 : 20);
      },
      nccl);
  if (code == 10) mask = 1;
  if (code == 20) mask = 0;
  return mask;
}

TEST(NcclKernels, AreNotRequestedFromTheReleaseWithTheHighestCost) {
  const Variables wanted{{"MUSTER_RECORD_KERNELS", "1"}};
  EXPECT_EQ(mask_after_init(wanted, 7, 23203), 1);
  EXPECT_EQ(mask_after_init(wanted, 7, 23102), 0);
  EXPECT_EQ(mask_after_init({}, 7, 23203), 0);
}

TEST(ChainedProfiler, GetsTheEventsOfItsOlderVersion) {
  for (const int version : {5, 6, 7}) {
    HostProcess process({{"MUSTER_NCCL_PROFILER_CHAIN", kOldSecond},
                         {"SECOND_MASK", std::to_string(kGroup | kColl | kP2p | kCollApi)}});
    ASSERT_EQ(process.run(version, kMakesCalls), 0);
    EXPECT_EQ(process.calls(), expected_calls(version));
    const Lines seen = process.seen();
    // The parent is the group of the plan, as in that version.
    EXPECT_EQ(std::ranges::count(seen, "start 2 in 1"), 5);
    EXPECT_EQ(std::ranges::count(seen, "start 4 in 1"), 3);
    EXPECT_EQ(std::ranges::count(seen, "start 512 in 0"), 0);
    EXPECT_EQ(std::ranges::count(seen, "a strange handle"), 0);
  }
}

TEST(ChainedProfiler, MayFailOrBeMissing) {
  for (const Variables& variables :
       {Variables{
            {"MUSTER_NCCL_PROFILER_CHAIN", kSecond}, {"SECOND_MASK", "2"}, {"SECOND_FAILS", "1"}},
        Variables{{"MUSTER_NCCL_PROFILER_CHAIN", "/no/such/libnccl-profiler.so"}},
        Variables{{"MUSTER_NCCL_PROFILER_CHAIN", kPlugin}}}) {
    HostProcess process(variables);
    ASSERT_EQ(process.run(7, kMakesCalls), 0);
    EXPECT_EQ(process.calls(), expected_calls(7));
  }
}

TEST(ChainedProfiler, IsFoundByTheShortName) {
  const std::string folder = std::filesystem::path(kSecond).parent_path();
  HostProcess process({{"MUSTER_NCCL_PROFILER_CHAIN", "second"}, {"SECOND_MASK", "2"}});
  // The loader reads its search path only when a process starts.
  ASSERT_EQ(process.run(6,
                        [&](FakeNccl& host) {
                          ASSERT_NE(dlopen(kSecond, RTLD_NOW), nullptr);
                          kMakesCalls(host);
                        }),
            0);
  EXPECT_EQ(std::ranges::count(process.seen(), "stop 2"), 5);
}

TEST(ChainedProfiler, MayAskForOtherEventsLaterAndDoesNotEndTheRecording) {
  HostProcess process({{"MUSTER_NCCL_PROFILER_CHAIN", kSecond}, {"SECOND_MASK", "2"}});
  ASSERT_EQ(process.run(7,
                        [](FakeNccl& host) {
                          const auto one = host.open("tp", kHash, kWorld, kOwnRank);
                          void* const second = dlopen(kSecond, RTLD_NOW | RTLD_NOLOAD);
                          const auto ask =
                              reinterpret_cast<void (*)(int)>(dlsym(second, "second_profiler_ask"));
                          const int first = host.mask();
                          ask(0);
                          host.call(*one, {{}});
                          ask(static_cast<int>(kProxyOp));
                          host.call(*one, {{}});
                          EXPECT_EQ(host.mask(), first | static_cast<int>(kProxyOp));
                        }),
            0);
  EXPECT_EQ(process.state().groups.at(0).called, 2U);
  EXPECT_EQ(std::ranges::count(process.seen(), "stop 2"), 1);
}

TEST(NcclPluginProcess, DoesNotRecordInAForkedChild) {
  HostProcess process;
  ASSERT_EQ(process.run(6,
                        [](FakeNccl& host) {
                          const auto one = host.open("tp", kHash, kWorld, kOwnRank);
                          host.call(*one, {{}});
                          ring::TestChild child([&] {
                            host.call(*one, {{}});
                            return 0;
                          });
                          EXPECT_EQ(child.wait(), 0);
                        }),
            0);
  EXPECT_EQ(process.state().groups.at(0).called, 1U);
}

TEST(NcclPluginProcess, CountsMoreCallsInAGroupThanItRemembers) {
  HostProcess process;
  ASSERT_EQ(process.run(6,
                        [](FakeNccl& host) {
                          const auto one = host.open("tp", kHash, kWorld, kOwnRank);
                          host.call(*one, std::vector<FakeCall>(3000));
                        }),
            0);
  EXPECT_EQ(process.state().groups.at(0).called, 3000U);
}

}  // namespace
}  // namespace muster::nccl
