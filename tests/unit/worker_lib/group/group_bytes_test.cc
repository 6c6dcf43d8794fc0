#include "worker_lib/group/group_bytes.h"

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/worker_lib/group/fake_backend.h"

namespace muster::worker::group_test {
namespace {

Outcome<> broadcast_into(Group& group, std::string& bytes, int root) {
  return broadcast_bytes(group, bytes, root, {}, [&](size_t size) {
    bytes.resize(size);
    return bytes.data();
  });
}

TEST(GroupByteStrings, BroadcastReplacesAnyBytesWithThoseOfTheRoot) {
  const std::string sent("\0\xff\n\0", 4);
  FakeJob job(2);
  std::array<std::string, 2> got{std::string(100, 'x'), sent};
  job.each([&](FakeRank& rank) {
    EXPECT_TRUE(broadcast_into(*rank.group, got[static_cast<size_t>(rank.me)], 1));
  });
  EXPECT_EQ(got, (std::array{sent, sent}));
}

TEST(GroupByteStrings, AllRanksGetAllStringsInRankOrder) {
  const std::vector<std::string> brought{std::string("\0", 1), "", "three"};
  FakeJob job(3);
  job.each([&](FakeRank& rank) {
    const auto all = all_gather_bytes(*rank.group, brought[static_cast<size_t>(rank.me)], {});
    EXPECT_EQ(all.value_or(std::vector<std::string>{}), brought) << "rank " << rank.me;
  });
}

TEST(GroupByteStrings, AFailureOfEitherCollectiveFailsTheCall) {
  const Failure why{ErrorCode::timeout, "rank 1 is stopped", {{1}}};
  for (const uint64_t number : {1U, 2U}) {
    FakeJob job(2);
    job.tables().named("world").fail_at(number, why);
    job.each([&](FakeRank& rank) {
      std::string bytes = "kept";
      const Outcome<> done = broadcast_into(*rank.group, bytes, 0);
      ASSERT_FALSE(done.has_value());
      EXPECT_EQ(done.error(), (Failure{ErrorCode::timeout,
                                       "broadcast_bytes " + std::to_string(number) +
                                           " of group world: rank 1 is stopped",
                                       {{1}}}));
      if (number == 1) {
        EXPECT_EQ(bytes, "kept") << "no length has arrived";
      }
    });
    FakeJob other(2);
    other.tables().named("world").fail_at(number, why);
    other.each([&](FakeRank& rank) {
      const auto all = all_gather_bytes(*rank.group, "x", {});
      ASSERT_FALSE(all.has_value());
      EXPECT_EQ(all.error().message, "all_gather_bytes " + std::to_string(number) +
                                         " of group world: rank 1 is stopped");
    });
  }
}

TEST(GroupByteStrings, AnExpiredTimeoutTimesOut) {
  FakeJob job(2);
  const Outcome<std::vector<std::string>> all =
      all_gather_bytes(*job[0].group, "x", {.timeout = std::chrono::milliseconds(0)});
  ASSERT_FALSE(all.has_value());
  EXPECT_EQ(all.error().code, ErrorCode::timeout);
}

}  // namespace
}  // namespace muster::worker::group_test
