#include "worker_lib/group_labels.h"

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

TEST(GroupLabels, ATitleSaysGroupOnce) {
  EXPECT_EQ(group_title("world"), "group world");
  EXPECT_EQ(group_title("group of ranks 0-3"), "group of ranks 0-3");
  EXPECT_EQ(group_title("grouped"), "group grouped");
  EXPECT_EQ(group_title("group"), "group group");
}

TEST(GroupLabels, AnOperationIsNumberedIfItHasANumber) {
  EXPECT_EQ(operation_label("all_reduce", 17, "world"), "all_reduce 17 of group world");
  EXPECT_EQ(operation_label("send", 0, "group of rank 4"), "send of group of rank 4");
  EXPECT_EQ(operation_label("barrier", UINT64_MAX, "x"), "barrier 18446744073709551615 of group x");
}

TEST(GroupLabels, ALabelChangesNothingButTheMessage) {
  Failure failure{ErrorCode::timeout, "rank 2 did not come", {{2}}};
  failure.known_ns = 5;
  failure.is_suspicion = true;
  const Failure told = labelled(failure, "barrier 3 of group world");
  EXPECT_EQ(told,
            (Failure{ErrorCode::timeout, "barrier 3 of group world: rank 2 did not come", {{2}}}));
  EXPECT_EQ(told.known_ns, 5);
  EXPECT_TRUE(told.is_suspicion);
}

}  // namespace
}  // namespace muster::worker
