#include "agent/stacks/stack_reader.h"

#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(StackReader, AnswersAllTargetsThatItHasNoTimeToRead) {
  boost::asio::io_context io;
  WorkerProcesses processes{io, {}};
  StackReader reader(io, processes, [](int) {});
  std::vector<StackTarget> targets;
  for (int rank = 0; rank < 12; ++rank)  // More than it reads at a time.
    targets.push_back({.rank = rank, .pid = 1, .process = 1, .file = ""});
  std::vector<RankStacks> read;
  reader.read(targets, StackLook::brief, Duration{0},
              [&](std::vector<RankStacks> stacks) { read = std::move(stacks); });
  ASSERT_EQ(read.size(), targets.size());
  for (const RankStacks& one : read)
    EXPECT_EQ(one.missing, "its stacks could not be read within 0 ms") << one.rank;
}

}  // namespace
}  // namespace muster
