#include "worker_lib/training/helper_error.h"

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

// What the caller catches: its operation and its message.
std::pair<std::string, std::string> thrown_in_the_name_of(CallPurpose purpose,
                                                          const std::string& message) {
  try {
    in_the_name_of(purpose, [&] {
      throw DistributedError(ErrorCode::timeout, message, "all_reduce", "world", {{2}, {5}});
    });
  } catch (const DistributedError& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_EQ(error.group(), "world");
    EXPECT_EQ(error.failed_ranks(), (std::vector<GlobalRank>{{2}, {5}}));
    return {error.operation(), error.what()};
  }
  return {"nothing was thrown", ""};
}

TEST(HelperError, MessagesBeginWithTheCallersNameOnce) {
  using Thrown = std::pair<std::string, std::string>;
  EXPECT_EQ(thrown_in_the_name_of(CallPurpose::should_stop, "all_reduce 3 of group world: late"),
            (Thrown{"should_stop", "should_stop: all_reduce 3 of group world: late"}));
  EXPECT_EQ(thrown_in_the_name_of(CallPurpose::should_stop, "should_stop 3 of group world: late"),
            (Thrown{"should_stop", "should_stop 3 of group world: late"}));
  EXPECT_EQ(thrown_in_the_name_of(CallPurpose::should_stop, "should_stopper: late"),
            (Thrown{"should_stop", "should_stop: should_stopper: late"}));
  EXPECT_EQ(thrown_in_the_name_of(CallPurpose::gradient_buckets, ""),
            (Thrown{"GradientBuckets", "GradientBuckets: "}));
}

TEST(HelperError, OperationsRunUnderThePurposeAndReturnTheirResult) {
  EXPECT_EQ(in_the_name_of(CallPurpose::save_checkpoint, [] { return current_purpose(); }),
            CallPurpose::save_checkpoint);
  EXPECT_EQ(current_purpose(), CallPurpose::itself);
  thrown_in_the_name_of(CallPurpose::save_checkpoint, "late");
  EXPECT_EQ(current_purpose(), CallPurpose::itself) << "an exception ends it too";
  bool done = false;
  in_the_name_of(CallPurpose::split, [&] { done = true; });
  EXPECT_TRUE(done);
}

TEST(HelperError, ExceptionsOfTheProgramPassUnchanged) {
  try {
    in_the_name_of(CallPurpose::zero_first, [] { throw std::out_of_range("the program's"); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "the program's");
  }
}

TEST(HelperError, ASharedFailureIsThrownUnchangedWithoutAJob) {
  try {
    raise_shared({ErrorCode::mismatch, "the lists differ", {{1}}}, "GradientBuckets", "world");
  } catch (const DistributedError& error) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_STREQ(error.what(), "the lists differ");
    EXPECT_EQ(error.operation(), "GradientBuckets");
    EXPECT_EQ(error.group(), "world");
    EXPECT_EQ(error.failed_ranks(), std::vector<GlobalRank>{{1}});
  }
}

}  // namespace
}  // namespace muster::worker
