#include <gtest/gtest.h>

#include "worker_lib/call_word.h"

namespace muster::worker {
namespace {

TEST(CallSignature, ComparesEveryBitButTheOneForCounts) {
  const CallSignature call{0x0123456789abcdef, 5, 7};
  for (int bit = 0; bit < 64; ++bit) {
    CallSignature other = call;
    other.word ^= uint64_t{1} << bit;
    EXPECT_EQ(other == call, uint64_t{1} << bit == CallSignature::kHadCounts) << "bit " << bit;
  }
  EXPECT_FALSE((CallSignature{call.word, 4, 7} == call));
  EXPECT_FALSE((CallSignature{call.word, 5, 8} == call));
  EXPECT_TRUE((CallSignature{call.word, 5, 7} == call));
}

TEST(CallSignature, EqualCallsWithDifferentNumbersDiffer) {
  const NumberedCall seventh{7, {1, 2, 3}};
  EXPECT_EQ(seventh, (NumberedCall{7, {1 | CallSignature::kHadCounts, 2, 3}}));
  EXPECT_NE(seventh, (NumberedCall{8, {1, 2, 3}}));
  EXPECT_NE(seventh, (NumberedCall{7, {1, 2, 4}}));
}

}  // namespace
}  // namespace muster::worker
