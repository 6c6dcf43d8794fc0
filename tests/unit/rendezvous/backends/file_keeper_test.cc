#include "rendezvous/backends/file_keeper.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/rendezvous/backends/shared_folder.h"

namespace muster {
namespace {

JobRecord round_of(membership::Epoch epoch, uint64_t instance) {
  JobRecord job;
  job.epoch = epoch;
  job.instance = instance;
  job.host = {instance, 1};
  job.members = {{1, 2}, {3, 4}};
  return job;
}

class FileKeeperTest : public testing::Test {
 protected:
  const SharedFolder folder_;
  FileKeeper of_a{folder_.file()}, of_b{folder_.file()};
  const HostRecord a = record_of(1, 1001), b = record_of(2, 1002);
};

TEST_F(FileKeeperTest, KeepsTheHostAndItsRounds) {
  ASSERT_EQ(of_a.take(*of_a.look(), a), true);
  ASSERT_EQ(of_a.write(a, {}, round_of(1, 1), {}), true);
  ASSERT_EQ(of_a.write(a, round_of(1, 1), round_of(2, 1), {}), true);
  const auto seen = of_b.look();
  ASSERT_TRUE(seen && seen->host);
  EXPECT_EQ(seen->host->instance, 1u);
  EXPECT_EQ(seen->job, round_of(2, 1));
  of_a.leave(a);
  EXPECT_EQ(folder_.names(), std::vector<std::string>{});
}

TEST_F(FileKeeperTest, WritesARoundOnceIfTheAnswerIsLost) {
  ASSERT_EQ(of_a.take(*of_a.look(), a), true);
  ASSERT_EQ(of_a.write(a, {}, round_of(1, 1), {}), true);
  const std::string version = of_b.look()->version;
  EXPECT_EQ(of_a.write(a, {}, round_of(1, 1), {}), true);
  EXPECT_EQ(of_b.look()->version, version);
}

TEST_F(FileKeeperTest, RefusesRoundsOfAReplacedHost) {
  ASSERT_EQ(of_a.take(*of_a.look(), a), true);
  ASSERT_EQ(of_a.write(a, {}, round_of(1, 1), {}), true);
  ASSERT_EQ(of_b.take(*of_b.look(), b), true);
  EXPECT_EQ(of_b.look()->job, round_of(1, 1));
  EXPECT_EQ(of_a.write(a, round_of(1, 1), round_of(2, 1), {}), false);
  EXPECT_EQ(of_a.beat(a), Keeper::Beat::replaced);
  EXPECT_EQ(of_b.write(b, round_of(1, 1), round_of(2, 2), {}), true);
  of_a.leave(a);
  EXPECT_EQ(of_b.look()->job, round_of(2, 2));
}

TEST_F(FileKeeperTest, RefusesATakeFromBeforeTheLastRound) {
  ASSERT_EQ(of_a.take(*of_a.look(), a), true);
  const auto early = of_b.look();
  ASSERT_EQ(of_a.write(a, {}, round_of(1, 1), {}), true);
  EXPECT_EQ(of_b.take(*early, b), false);
  EXPECT_EQ(of_b.take(*of_b.look(), b), true);
}

TEST_F(FileKeeperTest, DoesNotOverwriteAnotherRound) {
  ASSERT_EQ(of_a.take(*of_a.look(), a), true);
  ASSERT_EQ(of_a.write(a, {}, round_of(3, 1), {}), true);
  EXPECT_EQ(of_a.write(a, round_of(1, 1), round_of(2, 1), {}), false);
  EXPECT_EQ(of_a.look()->job, round_of(3, 1));
}

TEST_F(FileKeeperTest, ShowsBeatsAfterAnyRound) {
  ASSERT_EQ(of_a.take(*of_a.look(), a), true);
  uint64_t before = of_b.look()->host->beat;
  for (membership::Epoch epoch = 0; epoch < 4; ++epoch) {
    ASSERT_EQ(of_a.beat(a), Keeper::Beat::kept);
    const uint64_t beat = of_b.look()->host->beat;
    EXPECT_GT(beat, before);
    before = beat;
    const JobRecord last = epoch == 0 ? JobRecord{} : round_of(epoch, 1);
    ASSERT_EQ(of_a.write(a, last, round_of(epoch + 1, 1), {}), true);
    EXPECT_EQ(of_b.look()->host->beat, before);
  }
}

TEST_F(FileKeeperTest, ReportsARemovedFile) {
  ASSERT_EQ(of_a.take(*of_a.look(), a), true);
  FileKeeper(folder_.file()).leave(a);  // Removes nothing, since it took nothing.
  EXPECT_EQ(of_a.beat(a), Keeper::Beat::kept);
  std::filesystem::remove(folder_.file());
  EXPECT_EQ(of_a.beat(a), Keeper::Beat::gone);
  EXPECT_EQ(of_a.write(a, {}, round_of(1, 1), {}), false);
}

TEST_F(FileKeeperTest, RefusesHalfAJobRecord) {
  ASSERT_EQ(of_a.take(*of_a.look(), a), true);
  ASSERT_EQ(of_a.write(a, {}, round_of(1, 1), {}), true);
  const std::string whole = folder_.text();
  folder_.write("meet", whole.substr(0, whole.size() - 3));
  EXPECT_EQ(of_b.look().error().code, ExitCode::environment);
  std::string wrong = whole;
  wrong.replace(wrong.find("job-epoch 1"), 11, "job-epoch x");
  folder_.write("meet", wrong);
  EXPECT_EQ(of_b.look().error().code, ExitCode::environment);
}

// Older versions skip unknown lines; the host then tells them that it is newer.
TEST_F(FileKeeperTest, OlderReadersFindTheHost) {
  ASSERT_EQ(of_a.take(*of_a.look(), a), true);
  ASSERT_EQ(of_a.write(a, {}, round_of(1, 1), {}), true);
  const auto host = decode_record(folder_.text());
  ASSERT_TRUE(host);
  EXPECT_EQ(host->addresses, a.addresses);
}

}  // namespace
}  // namespace muster
