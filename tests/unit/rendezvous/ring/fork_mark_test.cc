#include "rendezvous/ring/fork_mark.h"

#include <utility>

#include <gtest/gtest.h>

#include "tests/unit/rendezvous/ring/ring_harness.h"

namespace muster::ring {
namespace {

class ForkMarkBy : public testing::TestWithParam<ForkMark::Means> {};

INSTANTIATE_TEST_SUITE_P(AllMeans, ForkMarkBy,
                         testing::Values(ForkMark::Means::kernel, ForkMark::Means::handler));

TEST_P(ForkMarkBy, HoldsInItsProcessButNotInForkedDescendants) {
  const auto mark = ForkMark::make(GetParam());
  ASSERT_TRUE(mark.has_value());
  TestChild child([&] {
    TestChild grandchild([&] { return mark->is_here() ? 1 : 0; });
    return mark->is_here() ? 1 : grandchild.wait();
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(mark->is_here());
}

TEST_P(ForkMarkBy, AForkedChildCanMakeItsOwnMark) {
  const auto mark = ForkMark::make(GetParam());
  ASSERT_TRUE(mark.has_value());
  TestChild child([&] {
    const auto own = ForkMark::make(GetParam());
    return own && own->is_here() && !mark->is_here() ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST_P(ForkMarkBy, CanBeMovedAndUnmapsItsPageWhenDestroyed) {
  {
    auto mark = ForkMark::make(GetParam());
    ASSERT_TRUE(mark.has_value());
    const ForkMark moved = std::move(*mark);
    mark.reset();
    EXPECT_TRUE(moved.is_here());
    TestChild child([&] { return moved.is_here() ? 1 : 0; });
    EXPECT_EQ(child.wait(), 0);
  }
  TestChild child([] { return 0; });  // A leftover handler would write to the unmapped page.
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace muster::ring
