// Which of several ranks differ from most.
#include "worker_lib/camps.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Camps, BlameTheMinority) {
  EXPECT_THAT(camps_of(std::vector<int>{5, 5, 5}).blamed, IsEmpty());
  EXPECT_THAT(camps_of(std::vector<int>{5, 7, 5}).blamed, ElementsAre(1));
  EXPECT_THAT(camps_of(std::vector<int>{7, 5, 5, 8}).blamed, ElementsAre(0, 3));
  EXPECT_EQ(camps_of(std::vector<int>{7, 5, 5, 8}).index_of_majority, 1U);
  EXPECT_THAT(camps_of(std::vector<int>{}).blamed, IsEmpty());
}

TEST(Camps, BlameAllWithoutAMajority) {
  EXPECT_THAT(camps_of(std::vector<int>{5, 7}).blamed, ElementsAre(0, 1));
  EXPECT_THAT(camps_of(std::vector<int>{5, 7, 5, 7, 9}).blamed, ElementsAre(0, 1, 2, 3, 4));
}

}  // namespace
}  // namespace muster::worker
