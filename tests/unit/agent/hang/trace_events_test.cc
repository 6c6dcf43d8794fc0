#include "agent/hang/trace_events.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace muster::hang {
namespace {

using nlohmann::json;

// Parses one line of a trace without its trailing comma.
json event_of(const std::string& line) {
  EXPECT_TRUE(line.ends_with(",\n")) << line;
  return json::parse(line.substr(0, line.size() - 2));
}

RecordedCall all_reduce() {
  RecordedCall call;
  call.ordinal = 17;
  call.call = {.kind = ring::CallKind::all_reduce,
               .type = ring::ElementType::float32,
               .reduction = ring::Reduction::sum,
               .is_synchronous = true,
               .count = 262144};
  call.site = "train.py:88 step";
  return call;
}

TEST(TraceEvents, ShowACallFromStartToEndInMicroseconds) {
  const RecordedCall call = all_reduce();
  const json event = event_of(trace_call({.rank = 5,
                                          .row = 2,
                                          .group = "tp",
                                          .call = &call,
                                          .called = 1'000'002'003,
                                          .over = 1'000'502'004}));
  EXPECT_EQ(event, json::parse(R"({
    "ph": "X", "pid": 5, "tid": 2, "ts": 1000002.003, "dur": 500.001, "cat": "collective",
    "name": "all_reduce #17",
    "args": {"group": "tp", "ordinal": 17, "count": 262144, "type": "float32", "reduction": "sum",
             "synchronous": true, "site": "train.py:88 step"}})"));
}

TEST(TraceEvents, SayHowMuchIsKnownOfTheEnd) {
  const RecordedCall call = all_reduce();
  TraceCall traced{
      .rank = 0, .row = 1, .group = "world", .call = &call, .called = 1000, .over = 3000};
  EXPECT_FALSE(event_of(trace_call(traced))["args"].contains("end"));
  traced.is_late = true;
  EXPECT_EQ(event_of(trace_call(traced))["args"]["end"], "noticed later");
  traced.is_complete = false;
  EXPECT_EQ(event_of(trace_call(traced))["args"]["end"], "not complete");
  traced.over.reset();
  const json unknown = event_of(trace_call(traced));
  EXPECT_EQ(unknown["args"]["end"], "unknown");
  EXPECT_EQ(unknown["ph"], "i");
  EXPECT_FALSE(unknown.contains("dur"));
}

TEST(TraceEvents, ShowMessagesWithPeerAndTag) {
  RecordedCall call;
  call.ordinal = 3;
  call.tag = 9;
  call.call = {.kind = ring::CallKind::send, .root = 1};
  const json event = event_of(trace_call(
      {.rank = 0, .row = 1, .group = "pp", .call = &call, .called = 1000, .over = 2000}));
  EXPECT_EQ(event["cat"], "message");
  EXPECT_EQ(event["name"], "send #3");
  EXPECT_EQ(event["args"],
            json::parse(R"({"group":"pp","ordinal":3,"peer":1,"tag":9,"synchronous":false})"));
}

TEST(TraceEvents, EscapeNamesThatAProgramChose) {
  RecordedCall call = all_reduce();
  call.site = "a\"b\\\n\xff";
  const json event = event_of(
      trace_call({.rank = 0, .row = 1, .group = "\"},{", .call = &call, .called = 0, .over = 1}));
  EXPECT_EQ(event["args"]["group"], "\"},{");
  EXPECT_EQ(event["args"]["site"], "a\"b\\\n\xef\xbf\xbd");
}

TEST(TraceEvents, NeverEndBeforeTheyBegin) {
  const RecordedCall call = all_reduce();
  const json event = event_of(
      trace_call({.rank = 0, .row = 1, .group = "w", .call = &call, .called = 5000, .over = 1000}));
  EXPECT_EQ(event["dur"], 0);
}

TEST(TraceEvents, NameAndSortRanksAndRows) {
  std::string lines = trace_rank(3, "rank 3 (node-b)") + trace_row(3, 2, "tp (2)");
  lines.resize(lines.size() - 2);
  EXPECT_EQ(json::parse("[" + lines + "]"), json::parse(R"json([
    {"ph": "M", "pid": 3, "tid": 0, "name": "process_name", "args": {"name": "rank 3 (node-b)"
}
},
    {"ph": "M", "pid": 3, "tid": 0, "name": "process_sort_index", "args": {"sort_index": 3}},
    {"ph": "M", "pid": 3, "tid": 2, "name": "thread_name", "args": {"name": "tp (2)"}},
    {"ph": "M", "pid": 3, "tid": 2, "name": "thread_sort_index", "args": {"sort_index": 2}}])json"));
}

TEST(TraceEvents, MarkInstantsOfARankOrOfAllRanks) {
  EXPECT_EQ(event_of(trace_instant(3, 1500, "ended with 1")),
            json::parse(
                R"({"ph": "i", "s": "p", "pid": 3, "tid": 0, "ts": 1.5, "name": "ended with 1"})"));
  EXPECT_EQ(
      event_of(trace_instant(-1, 1500, "attempt 1")),
      json::parse(R"({"ph": "i", "s": "g", "pid": 0, "tid": 0, "ts": 1.5, "name": "attempt 1"})"));
}

TEST(TraceEvents, FormACompleteArray) {
  const json whole = json::parse(trace_begin() + trace_instant(0, 0, "started") + trace_end());
  ASSERT_EQ(whole.size(), 2u);
  EXPECT_EQ(whole[0]["name"], "started");
  EXPECT_EQ(json::parse(trace_begin() + trace_end()).size(), 1u);
}

}  // namespace
}  // namespace muster::hang
