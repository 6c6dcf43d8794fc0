// The training helpers in a world of one, which needs no launcher; with several ranks they are in
// tests/live/worker_examples_test.py.
#include "muster/training.h"

#include <memory>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include "muster/error.h"
#include "muster/init.h"
#include "muster/sampler.h"

namespace muster {
namespace {

class Training : public testing::Test {
 protected:
  Training() { init_process_group({.on_sigterm = StopPolicy::agree}); }
  ~Training() override { destroy_process_group(); }
};

TEST_F(Training, ZeroFirstRunsItsBlockOnceOnEachRank) {
  int runs = 0;
  zero_first([&] { ++runs; });
  EXPECT_EQ(runs, 1);
  local_zero_first([&] { ++runs; });
  EXPECT_EQ(runs, 2);
}

TEST_F(Training, ZeroFirstReturnsTheResultOfTheBlock) {
  EXPECT_EQ(zero_first([] { return std::string("made"); }), "made");
  EXPECT_EQ(*local_zero_first([] { return std::make_unique<int>(7); }), 7);
  int place = 3;
  auto copy = zero_first([&]() -> int& { return place; });
  static_assert(std::is_same_v<decltype(copy), int>);
  EXPECT_EQ(copy, 3);
}

TEST_F(Training, ZeroFirstTakesBlocksThatAreNotConst) {
  struct Counting {
    int runs = 0;
    int operator()() { return ++runs; }
  };
  Counting block;
  EXPECT_EQ(zero_first(block), 1);
  EXPECT_EQ(local_zero_first(block), 2);
}

TEST_F(Training, ZeroFirstGivesTheFirstRankItsOwnException) {
  try {
    zero_first([] { throw std::out_of_range("no such word"); });
    FAIL() << "went well";
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "no such word");
  }
  EXPECT_THROW(local_zero_first([]() -> int { throw 5; }), int);
  EXPECT_EQ(zero_first([] { return 1; }), 1);  // The world goes on.
}

TEST_F(Training, StopsOnceAsked) {
  EXPECT_FALSE(should_stop());
  EXPECT_FALSE(should_stop());
  request_stop();
  EXPECT_TRUE(should_stop());
  EXPECT_TRUE(should_stop());
}

TEST_F(Training, SamplersTakeTheirRankFromTheJob) {
  const DistributedSampler sampler(3, {.shuffle = false});
  EXPECT_EQ(sampler.size(), 3u);
  EXPECT_EQ(sampler[2], 2u);
}

TEST(TrainingThatIgnoresSigterm, StopsOnceAsked) {
  init_process_group({.on_sigterm = StopPolicy::ignore});
  EXPECT_FALSE(should_stop());
  request_stop();
  EXPECT_TRUE(should_stop());
  destroy_process_group();
}

void expect_not_initialized(const std::function<void()>& call) {
  try {
    call();
    FAIL() << "there is no job";
  } catch (const DistributedError& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_initialized);
  }
}

TEST(TrainingWithoutAJob, IsRefused) {
  int runs = 0;
  expect_not_initialized([&] { zero_first([&] { ++runs; }); });
  expect_not_initialized([&] { local_zero_first([&] { ++runs; }); });
  expect_not_initialized([] { (void)should_stop(); });
  expect_not_initialized([] { request_stop(); });
  EXPECT_EQ(runs, 0);
}

TEST(TrainingWithoutAJob, ForgetsTheStopOfTheLastJob) {
  for (int job = 0; job < 2; ++job) {
    init_process_group({.on_sigterm = StopPolicy::agree});
    EXPECT_FALSE(should_stop());
    request_stop();
    EXPECT_TRUE(should_stop());
    destroy_process_group();
  }
}

}  // namespace
}  // namespace muster
