// The main of every GoogleTest program. Where all that ran passed and some were skipped, the exit
// status says so, and ctest then does.
#include <gtest/gtest.h>

namespace {

constexpr int kSkipped = 77;

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  const bool skipped = testing::UnitTest::GetInstance()->skipped_test_count() > 0;
  return status == 0 && skipped ? kSkipped : status;
}
