// How long a node whose workers have succeeded waits for the judging node. The worker is this
// process.
#include "agent/hang/hang_watch.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "agent/hang/watch_wire.h"
#include "rendezvous/ring/ring_writer.h"

namespace muster::hang {
namespace {

class HangWatchTest : public testing::Test {
 protected:
  HangWatchTest() {
    HangWatch::Callbacks callbacks;
    callbacks.found = [](const Effect&) {};
    callbacks.told = [](std::string_view) {};
    callbacks.send = [this](int, std::string payload) { sent_.push_back(std::move(payload)); };
    callbacks.is_held = [](int) { return false; };
    callbacks.settled = [] {};
    callbacks.held_up = [](const Stragglers&) {};
    callbacks.looked = [] {};
    callbacks.read = [](int, const RecordedState&, const RingReader&) {};
    callbacks.clock = [](Instant, int64_t, Duration) {};
    watch_.emplace(io_, rings_, site_names_, Limits(), std::move(callbacks));
  }

  // Runs node `node_rank` of two with one rank each, until its rank has ended.
  void run(int node_rank, bool records = true) {
    rings_.begin_attempt(1);
    const auto record_fd = rings_.make(0).value();
    watch_->begin({.node_rank = node_rank,
                   .nodes = 2,
                   .base_rank = node_rank,
                   .workers = 1,
                   .world_size = 2,
                   .host = "node"});
    watch_->started(0, getpid(), "");
    if (records) {
      std::string why;
      writer_ = ring::RingWriter::attach(to_text(record_fd), ring::Source::worker_lib, why);
      ASSERT_TRUE(writer_) << why;
    }
    rings_.close_descriptor();
    watch_->ended(0, 0);
    watch_->when_judged([this] { ++judged_; });
  }

  void answer(const std::vector<int>& ranks, int node_rank = 0) {
    watch_->hear(node_rank, letter_of(Letter::heard, encode_ranks(ranks)), Instant(), Duration(0));
  }

  size_t last_digests() const {
    return static_cast<size_t>(std::ranges::count_if(sent_, [](const std::string& payload) {
      return payload.front() == static_cast<char>(Letter::last_digest);
    }));
  }

  boost::asio::io_context io_;
  Rings rings_{true, [](const std::string&) {}};
  SiteNames site_names_{io_};
  std::optional<HangWatch> watch_;
  std::unique_ptr<ring::RingWriter> writer_;
  std::vector<std::string> sent_;
  int judged_ = 0;
};

TEST_F(HangWatchTest, TheJudgesAnswerEndsTheWait) {
  run(1);
  EXPECT_EQ(last_digests(), 1U);
  EXPECT_EQ(judged_, 0);
  answer({});
  answer({0});
  answer({1}, /*node_rank=*/2);
  EXPECT_EQ(judged_, 0);
  answer({1});
  EXPECT_EQ(judged_, 1);
  io_.run_for(std::chrono::milliseconds(1));
  EXPECT_EQ(last_digests(), 1U);
}

TEST_F(HangWatchTest, ALostMessageIsSentAgain) {
  run(1);
  while (last_digests() < 2)
    io_.run_one();
  EXPECT_EQ(judged_, 0);
}

TEST_F(HangWatchTest, ASilentJudgeIsNotAwaitedForLong) {
  run(1);
  while (judged_ == 0)
    io_.run_one();
  answer({1});
  EXPECT_EQ(judged_, 1);
}

TEST_F(HangWatchTest, ANodeThatRecordedNothingDoesNotWait) {
  run(1, /*records=*/false);
  EXPECT_EQ(judged_, 1);
}

TEST_F(HangWatchTest, TheNodeThatJudgesDoesNotWait) {
  run(0);
  EXPECT_EQ(judged_, 1);
}

TEST_F(HangWatchTest, AnAnswerAfterTheEndOfTheAttemptIsIgnored) {
  run(1);
  watch_->end();
  answer({1});
  EXPECT_EQ(judged_, 0);
}

}  // namespace
}  // namespace muster::hang
