// Compares our declarations of PMIx with the real header, if the machine has one.
#include "agent/meeting/pmix_abi.h"

#include <cstddef>
#include <type_traits>

#include <gtest/gtest.h>

#ifdef MUSTER_PMIX_HEADER
#include <pmix.h>
#endif

namespace muster {
namespace {

#ifdef MUSTER_PMIX_HEADER
TEST(PmixAbi, MatchesTheHeader) {
  static_assert(sizeof(pmix::Proc) == sizeof(pmix_proc_t));
  static_assert(offsetof(pmix::Proc, rank) == offsetof(pmix_proc_t, rank));
  static_assert(sizeof(pmix::Value) == sizeof(pmix_value_t));
  static_assert(offsetof(pmix::Value, data) == offsetof(pmix_value_t, data));
  static_assert(sizeof(pmix::Info) == sizeof(pmix_info_t));
  static_assert(offsetof(pmix::Info, flags) == offsetof(pmix_info_t, flags));
  static_assert(offsetof(pmix::Info, value) == offsetof(pmix_info_t, value));
  static_assert(std::is_same_v<pmix_status_t, pmix::Status>);
  static_assert(std::is_same_v<pmix_scope_t, uint8_t>);
  static_assert(std::is_same_v<pmix_data_type_t, uint16_t>);

  EXPECT_EQ(pmix::kSuccess, PMIX_SUCCESS);
  EXPECT_EQ(pmix::kAnyRank, PMIX_RANK_WILDCARD);
  EXPECT_EQ(pmix::kGlobalScope, PMIX_GLOBAL);
  EXPECT_EQ(pmix::kBool, PMIX_BOOL);
  EXPECT_EQ(pmix::kString, PMIX_STRING);
  EXPECT_EQ(pmix::kUint32, PMIX_UINT32);
  EXPECT_STREQ(pmix::kCollectData, PMIX_COLLECT_DATA);
  EXPECT_STREQ(pmix::kJobSize, PMIX_JOB_SIZE);
}
#else
TEST(PmixAbi, MatchesTheHeader) {
  GTEST_SKIP() << "there is no pmix.h (Debian: libpmix-dev)";
}
#endif

}  // namespace
}  // namespace muster
