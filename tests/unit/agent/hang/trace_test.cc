#include "agent/hang/trace.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "rendezvous/base/steady_now.h"
#include "tests/unit/rendezvous/ring/ring_harness.h"
#include "tests/wait_for.h"

namespace muster::hang {
namespace {

using nlohmann::json;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr ring::Call kSynchronous{.kind = ring::CallKind::all_reduce,
                                  .type = ring::ElementType::int8,
                                  .reduction = ring::Reduction::max,
                                  .is_synchronous = true,
                                  .count = 8};

// Rank 3's ring, and a trace of it on this machine's clock.
class TraceTest : public testing::Test {
 protected:
  TraceTest() {
    auto opened =
        Trace::open(path_, names_, [this](const std::string& text) { said_.push_back(text); });
    CHECK(opened);
    trace_ = *std::move(opened);
    trace_->begin(0);
  }
  ~TraceTest() override { std::filesystem::remove(path_); }

  void tell_clock(std::chrono::nanoseconds ahead = {}) {
    const Instant now = steady_now();
    trace_->set_clock(now, now.time_since_epoch().count() + ahead.count(), Duration(0));
  }
  void attach() {
    writer_.reset();
    writer_ =
        ring::RingWriter::attach(ring_.text(), ring::Source::worker_lib, ring_.why, /*tsc=*/false);
    CHECK(writer_ != nullptr);
    world_ = open("world");
  }
  int32_t open(const char* name) {
    const int32_t group =
        writer_->open_group({.id = name, .name = name, .ranks = "0-7", .size = 8, .own_rank = 3});
    writer_->set_state(group, ring::GroupState::ready);
    return group;
  }
  void read() { trace_->read(3, reader_.state().value(), reader_); }

  // Ends the trace and returns all its events.
  std::vector<json> events() {
    trace_.reset();
    std::ifstream file(path_);
    std::stringstream text;
    text << file.rdbuf();
    return json::parse(text.str()).get<std::vector<json>>();
  }
  // The times of the events of that name, in microseconds.
  std::vector<double> times_of(const std::string& name) {
    std::vector<double> times;
    for (const json& event : events()) {
      if (event["name"] == name) times.push_back(event["ts"].get<double>());
    }
    return times;
  }
  // The events of calls: [name, row, what is known of the end].
  std::vector<json> calls() {
    std::vector<json> found;
    for (const json& event : events()) {
      if (event.contains("cat"))
        found.push_back({event["name"], event["tid"], event["args"].value("end", "")});
    }
    return found;
  }

  const std::string path_ =
      std::filesystem::temp_directory_path() / ("trace_test." + std::to_string(getpid()) + ".json");
  boost::asio::io_context io_;
  SiteNames names_{io_};
  std::vector<std::string> said_;
  std::unique_ptr<Trace> trace_;
  ring::TestRing ring_;
  const RingReader reader_ = RingReader::open({ring_.fd(), ring::kTestNonce}).value();
  std::unique_ptr<ring::RingWriter> writer_;
  int32_t world_ = -1;
};

TEST_F(TraceTest, ShowsACompletedCallExactlyOnce) {
  tell_clock();
  attach();
  const auto call = writer_->called(world_, 1, kSynchronous, nullptr);
  read();
  writer_->completed(call);
  read();
  read();
  EXPECT_THAT(calls(), ElementsAre(json{"all_reduce #1", 1, ""}));
}

TEST_F(TraceTest, PutsOverlappingCallsOfAGroupInSeparateRows) {
  tell_clock();
  attach();
  const int32_t tp = open("tp");
  const auto first = writer_->called(world_, 1, kSynchronous, nullptr);
  const auto second = writer_->called(world_, 2, kSynchronous, nullptr);
  const auto other = writer_->called(tp, 1, kSynchronous, nullptr);
  read();
  for (const auto& call : {first, second, other})
    writer_->completed(call);
  read();
  writer_->completed(writer_->called(world_, 3, kSynchronous, nullptr));
  read();
  std::vector<std::string> rows;
  std::vector<int> third;
  for (const json& event : events()) {
    if (event["name"] == "thread_name") rows.push_back(event["args"]["name"]);
    if (event["name"] == "all_reduce #3") third.push_back(event["tid"]);
  }
  EXPECT_THAT(third, ElementsAre(1));
  EXPECT_THAT(rows, ElementsAre("world", "world (2)", "tp"));
}

TEST_F(TraceTest, EndsOpenCallsWhenTheirRankEnds) {
  tell_clock();
  attach();
  writer_->called(world_, 1, kSynchronous, nullptr);
  read();
  trace_->ended(3, -9, &reader_);
  const auto all = events();
  EXPECT_EQ(all.at(all.size() - 2)["name"], "ended with -9");
  const json call = all.at(all.size() - 3);
  EXPECT_EQ(call["name"], "all_reduce #1");
  EXPECT_EQ(call["args"]["end"], "not complete");
  EXPECT_GT(call["dur"], 0);
}

TEST_F(TraceTest, DoesNotGuessTheEndOfACallThatALaterOneCompleted) {
  tell_clock();
  attach();
  writer_->called(world_, 1, kSynchronous, nullptr);
  const auto second = writer_->called(world_, 2, kSynchronous, nullptr);
  read();
  writer_->completed(second);
  read();
  EXPECT_THAT(calls(),
              ElementsAre(json{"all_reduce #1", 1, "unknown"}, json{"all_reduce #2", 2, ""}));
}

TEST_F(TraceTest, AwaitsNoEndThatCannotBeSeen) {
  tell_clock();
  attach();
  const int32_t group = writer_->open_group(
      {.id = "n", .name = "nccl", .size = 8, .own_rank = 3, .is_on_device = true});
  writer_->set_state(group, ring::GroupState::ready);
  writer_->called(group, 1, kSynchronous, nullptr);
  const auto second = writer_->called(group, 2, kSynchronous, nullptr);
  read();
  writer_->launched(second);
  writer_->started(second);
  const auto third = writer_->called(group, 3, kSynchronous, nullptr);
  read();
  writer_->started(third);
  writer_->completed(third);
  read();
  EXPECT_THAT(calls(),
              ElementsAre(json{"all_reduce #1", 1, "unknown"}, json{"all_reduce #2", 1, "unknown"},
                          json{"all_reduce #3", 1, ""}));
}

TEST_F(TraceTest, ReportsHowManyCallsItMissed) {
  tell_clock();
  attach();
  for (uint64_t ordinal = 1; ordinal <= ring::kRecords + 5; ++ordinal)
    writer_->completed(writer_->called(world_, ordinal, kSynchronous, nullptr));
  read();
  trace_->ended(3, 0, &reader_);
  EXPECT_THAT(said_,
              ElementsAre(HasSubstr(
                  "rank 3 calls faster than the trace can be read: 5 of its calls are missing")));
  EXPECT_EQ(calls().size(), ring::kRecords);
}

TEST_F(TraceTest, CountsTheMissedCallsOfEachProcess) {
  tell_clock();
  for (int process = 0; process < 2; ++process) {
    attach();
    for (uint64_t ordinal = 1; ordinal <= ring::kRecords + 5; ++ordinal)
      writer_->completed(writer_->called(world_, ordinal, kSynchronous, nullptr));
    read();
  }
  trace_->ended(3, 0, &reader_);
  EXPECT_THAT(said_, ElementsAre(HasSubstr("10 of its calls are missing")));
}

TEST_F(TraceTest, ReadsManyRanksInPartsAndTheRestAtTheEnd) {
  tell_clock();
  attach();
  for (int rank = 100; rank < 115; ++rank)
    trace_->started(rank, getpid(), "rank");
  for (uint64_t ordinal = 1; ordinal <= 3000; ++ordinal)
    writer_->completed(writer_->called(world_, ordinal, kSynchronous, nullptr));
  read();
  writer_->completed(writer_->called(world_, 3001, kSynchronous, nullptr));
  trace_->ended(3, 0, &reader_);
  EXPECT_THAT(said_, IsEmpty());
  const auto all = calls();
  ASSERT_EQ(all.size(), 3001U);
  EXPECT_EQ(all.back()[0], "all_reduce #3001");
}

TEST_F(TraceTest, ReadsUnreadCallsWhenTheirRankEnds) {
  attach();
  writer_->completed(writer_->called(world_, 1, kSynchronous, nullptr));
  writer_->called(world_, 2, kSynchronous, nullptr);
  trace_->ended(3, 0, &reader_);
  EXPECT_THAT(calls(),
              ElementsAre(json{"all_reduce #1", 1, ""}, json{"all_reduce #2", 1, "not complete"}));
}

TEST_F(TraceTest, UsesTheTimeOfDayUntilTheClockIsKnown) {
  trace_->started(3, getpid(), "rank 3");
  const auto wall = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  EXPECT_THAT(times_of("started"),
              ElementsAre(DoubleNear(static_cast<double>(wall.count()), 60e6)));
}

TEST_F(TraceTest, GroupsBeyondTheLimitShareARow) {
  tell_clock();
  attach();
  for (int i = 0; i < 100; ++i) {
    const int32_t group = open(("step " + std::to_string(i)).c_str());
    writer_->completed(writer_->called(group, 1, kSynchronous, nullptr));
    read();
    writer_->set_state(group, ring::GroupState::closed);
  }
  std::vector<std::string> rows;
  for (const json& event : events()) {
    if (event["name"] == "thread_name") rows.push_back(event["args"]["name"]);
  }
  EXPECT_EQ(rows.size(), 64U);
  EXPECT_EQ(rows.back(), "further groups");
}

TEST_F(TraceTest, UsesTheClockOfTheNodeThatJudges) {
  tell_clock(std::chrono::hours(1));
  attach();
  writer_->completed(writer_->called(world_, 1, kSynchronous, nullptr));
  read();
  const auto own = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now().time_since_epoch());
  EXPECT_THAT(times_of("all_reduce #1"),
              ElementsAre(DoubleNear(static_cast<double>(own.count()) + 3600e6, 60e6)));
}

TEST_F(TraceTest, WaitsForTheClockBeforeItReads) {
  attach();
  writer_->completed(writer_->called(world_, 1, kSynchronous, nullptr));
  read();
  tell_clock();
  read();
  EXPECT_THAT(said_, IsEmpty());
  EXPECT_THAT(calls(), ElementsAre(json{"all_reduce #1", 1, ""}));
}

TEST_F(TraceTest, KeepsTheMoreExactClock) {
  const Instant now = steady_now();
  trace_->set_clock(now, 1'000'000'000, std::chrono::microseconds(10));
  trace_->set_clock(now, 9'000'000'000'000, std::chrono::milliseconds(10));
  trace_->mark("now");
  EXPECT_THAT(times_of("now"), ElementsAre(DoubleNear(1e6, 60e6)));
}

TEST_F(TraceTest, StartsOverWithAnotherProcessOfTheRank) {
  tell_clock();
  attach();
  writer_->called(world_, 1, kSynchronous, nullptr);
  read();
  attach();
  writer_->completed(writer_->called(world_, 1, kSynchronous, nullptr));
  read();
  // It is not known when the first process ended.
  EXPECT_THAT(calls(),
              ElementsAre(json{"all_reduce #1", 1, "not complete"}, json{"all_reduce #1", 2, ""}));
}

TEST_F(TraceTest, IsReadableThoughItWasNotEnded) {
  tell_clock();
  attach();
  writer_->completed(writer_->called(world_, 1, kSynchronous, nullptr));
  read();
  std::string text;
  const auto has_the_call = [&] {
    std::stringstream read;
    read << std::ifstream(path_).rdbuf();
    text = read.str();
    return text.find("all_reduce") != std::string::npos && text.ends_with(",\n");
  };
  ASSERT_TRUE(test::wait_for(has_the_call, "a whole line of the call")) << text;
  EXPECT_TRUE(json::accept(text.substr(0, text.size() - 2) + "]"));
}

TEST(TracePath, HasTheNodeBeforeItsExtension) {
  EXPECT_EQ(Trace::path_of_node("out/trace.json", 3, 1), "out/trace.node3.json");
  EXPECT_EQ(Trace::path_of_node("a.b/trace", 0, 2), "a.b/trace.node0.round2");
}

// The agent cannot print yet, or no longer.
TEST(TracePath, AFullDiskIsNotReportedBeforeOrAfterTheJob) {
  boost::asio::io_context io;
  SiteNames names(io);
  int said = 0;
  for (int i = 0; i < 20; ++i) {
    const auto trace = Trace::open("/dev/full", names, [&](const std::string&) { ++said; });
    ASSERT_TRUE(trace);
    test::pause_for(std::chrono::milliseconds(5), "its first line may fail by then");
  }
  EXPECT_EQ(said, 0);
}

TEST(TracePath, IsAnErrorIfItCannotBeWritten) {
  boost::asio::io_context io;
  SiteNames names(io);
  const auto trace = Trace::open("/proc/nothing/trace.json", names, [](const std::string&) {});
  ASSERT_FALSE(trace);
  EXPECT_EQ(trace.error().code, ExitCode::environment);
  EXPECT_EQ(trace.error().message,
            "cannot write the trace /proc/nothing/trace.json: No such file or directory; name "
            "another file with --trace");
}

}  // namespace
}  // namespace muster::hang
