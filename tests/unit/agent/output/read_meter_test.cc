#include <optional>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "agent/output/worker_stream.h"

namespace muster {
namespace {

class ReadMeterTest : public testing::Test {
 protected:
  ReadMeterTest() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
    EXPECT_EQ(fcntl(fds[0], F_SETFL, O_NONBLOCK), 0);
    theirs_.reset(fds[1]);
    meter_.emplace(UniqueFd(fds[0]));
  }

  void print(const std::string& text) {
    ASSERT_EQ(write(theirs_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  char buffer_[64];
  UniqueFd theirs_;
  std::optional<ReadMeter> meter_;
};

TEST_F(ReadMeterTest, CountsWhatWaitsInThePipeAsPrintedBeforeTheStop) {
  print("12345");
  EXPECT_EQ(meter_->read(buffer_, 3), 3);
  meter_->mark_stop();
  print("after");
  EXPECT_EQ(meter_->read(buffer_, sizeof buffer_), 7);
  EXPECT_EQ(meter_->before_stop(), 5u);
}

TEST_F(ReadMeterTest, OnlyTheFirstMarkCounts) {
  print("12");
  meter_->mark_stop();
  print("34");
  meter_->mark_stop();
  EXPECT_EQ(meter_->before_stop(), 2u);
}

TEST_F(ReadMeterTest, CountsEverythingAsBeforeTheStopWithoutAMark) {
  print("1234");
  EXPECT_EQ(meter_->read(buffer_, sizeof buffer_), 4);
  EXPECT_EQ(meter_->before_stop(), 4u);
}

TEST_F(ReadMeterTest, DistinguishesAnEmptyPipeFromItsEnd) {
  EXPECT_EQ(meter_->read(buffer_, sizeof buffer_), -1);
  theirs_.reset();
  EXPECT_EQ(meter_->read(buffer_, sizeof buffer_), 0);
}

TEST_F(ReadMeterTest, CountsOnlyTheBytesThatWereReadFromAClosedStream) {
  print("1234");
  EXPECT_EQ(meter_->read(buffer_, 2), 2);
  meter_->close();
  meter_->mark_stop();
  EXPECT_EQ(meter_->before_stop(), 2u);
}

}  // namespace
}  // namespace muster
