#include "agent/control/control_protocol.h"

#include <csignal>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster::control {
namespace {

std::string without_newline(std::string line) {
  EXPECT_TRUE(line.ends_with('\n'));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  line.pop_back();
  return line;
}

std::string request_complaint(std::string_view line) {
  const Result<Request> request = decode_request(line);
  if (request) return "no complaint";
  EXPECT_EQ(request.error().code, ExitCode::usage);
  return request.error().message;
}

std::string complaint_about_reply(std::string_view line) {
  const Result<Reply> reply = decode_reply(line);
  if (reply) return "no complaint";
  EXPECT_EQ(reply.error().code, ExitCode::internal);
  return reply.error().message;
}

const std::vector<Request>& requests() {
  static const std::vector<Request> all{
      StatusRequest{},
      SignalRequest{SIGUSR1, {}},
      SignalRequest{SIGRTMIN + 3, {{0, 0}, {8, 15}}},
      LogsRequest{},
      LogsRequest{{{3, 3}}, 0, true},
      LogsRequest{{{0, 2147483647}}, kLogLinesMax, false},
      RecordsRequest{},
      RecordsRequest{{{3, 3}}, kRecordLinesMax},
      StacksRequest{},
      StacksRequest{{{3, 4}}, true, false},
      StacksRequest{{}, false, true},
      DumpRequest{},
      VariablesRequest{},
  };
  return all;
}

JobStatus some_status() {
  JobStatus status;
  status.job_id = "job 7";
  status.pid = 4711;
  status.program = "-m pkg.train";
  status.phase = "attempt 1, restart 1 of 3: running, 8 of 8 workers alive";
  status.epoch = int64_t{1} << 40;
  status.world_size = 16;
  status.nodes = {{0, "node-a", 0, 8, "running"},
                  {1, "node-b", 8, 8, "silent for 1.2 s"},
                  {-1, "node-c", 0, 0, "spare"}};
  status.restarts_used = 1;
  status.max_restarts = 3;
  status.membership_changes = 2;
  status.max_membership_changes = 5;
  status.uptime_s = 62.5;
  status.log_dir = "/tmp/logs";
  return status;
}

RankRecords some_records() {
  RankRecords records;
  records.rank = 3;
  records.pid = 4711;
  records.summary = "in all_reduce #1042 of group 'world' for 12.4 s";
  records.source = "worker_lib";
  records.owner = 4712;
  records.attached_ago_s = 62.5;
  records.recorded = int64_t{1} << 40;
  records.dropped = 1;
  records.groups_left_out = 2;
  records.garbage = 3;
  records.failure = "rank 5 died";
  records.failed_group = "world";
  records.failed_ago_s = 0.25;
  records.groups = {{"world", "world#0", "0-7", 8, 3, GroupState::ready, 1042, 1041, 60.5, 12.5}};
  records.sections = {{"checkpoint", 1.5}};
  records.current = {"pp", 3, "recv", "recv of 1 int8",   1,   "int8",       "unknown",
                     1,    0, true,   CallState::pending, 2.5, std::nullopt, "a.py:1 f"};
  records.calls = {{"world", 1041, "barrier", "barrier", 0, "unknown", "unknown", -1, 0, true,
                    CallState::complete, 12.75, 0.125, "train.py:80 step"},
                   {"world", 1042, "recv", "recv of 8 float32 from rank 2 of the group", 8,
                    "float32", "unknown", 2, 7, true, CallState::pending, 12.5, std::nullopt, ""}};
  return records;
}

RankStacks some_stacks() {
  return {
      .rank = 3,
      .pid = 4711,
      .process = 4712,
      .in_call = true,
      .threads = {{4712, "main", {{"read", "/lib/libc.so.6", 0}, {"load", "a.py", 88}}},
                  {0, "", {}}},
      .missing = "no Python frames",
      .processes = {{.pid = 4712,
                     .name = "python3",
                     .doing = "blocked in flock()",
                     .is_sole_holder = true,
                     .waits_for_thread = true,
                     .lock_holder = 7,
                     .lock_holder_name = "sh",
                     .lock_holder_rank = 2},
                    {.pid = 4713,
                     .name = "python3",
                     .ended = "exited with 1",
                     .is_idle = true,
                     .frames = {{"load", "a.py", 88}}}},
      .processes_left_out = 3,
      .ended_thread = EndedThread{"prefetch", "ValueError: bad record", "data.py:12 read", 35.5}};
}

const std::vector<Reply>& replies() {
  static const std::vector<Reply> all{
      Done{},
      JobStatus{},
      some_status(),
      std::vector<LogText>{},
      std::vector<LogText>{{3, "a line\nand \"more\"\n", 512}, {4, "", 0}},
      Records{},
      Records{{some_records(), RankRecords{}}, {}},
      Records{{some_records()}, {"node-b (ranks 4-7): no answer within 2 s", ""}},
      Stacks{},
      Stacks{{some_stacks(), RankStacks{}}, {}},
      Stacks{{}, {"node-b (ranks 4-7): no answer within 10 s"}},
      Dump{"/logs/dump_1.json", {"node-b (ranks 4-7): no answer within 9 s"}},
      Variables{},
      Variables{{"LANG", "C", 65535}, {"A_TOKEN", std::nullopt, 7}, {"", "", 0}},
      Error{ExitCode::environment, "the disk is stuck"},
  };
  return all;
}

TEST(ControlRequest, DecodesToWhatWasEncoded) {
  for (const Request& request : requests())
    EXPECT_EQ(decode_request(without_newline(encode(request))), Result<Request>(request));
}

TEST(ControlRequest, IsPlainJson) {
  EXPECT_EQ(encode(Request(StatusRequest{})), "{\"command\":\"status\"}\n");
  EXPECT_EQ(encode(Request(SignalRequest{SIGUSR1, {{0, 0}, {8, 15}}})),
            "{\"command\":\"signal\",\"ranks\":[0,[8,15]],\"signal\":\"SIGUSR1\"}\n");
  EXPECT_EQ(encode(Request(LogsRequest{{}, 20, true})),
            "{\"command\":\"logs\",\"follow\":true,\"lines\":20}\n");
  EXPECT_EQ(encode(Request(RecordsRequest{{{3, 3}}, 20})),
            "{\"command\":\"records\",\"lines\":20,\"ranks\":[3]}\n");
  EXPECT_EQ(encode(Request(StacksRequest{{{3, 3}}, false, true})),
            "{\"command\":\"stacks\",\"main_threads\":true,\"quiet\":false,\"ranks\":[3]}\n");
}

TEST(ControlRequest, AcceptsHandWrittenJson) {
  EXPECT_EQ(decode_request(R"({"command":"signal","signal":"usr1","ranks":[0,8]})"),
            Result<Request>(SignalRequest{SIGUSR1, {{0, 0}, {8, 8}}}));
  EXPECT_EQ(decode_request(R"( {"command" : "logs", "colour": [1]} )"),
            Result<Request>(LogsRequest{}));
}

TEST(ControlRequest, SaysWhatIsWrong) {
  const std::string remedy = "; use musterctl of the same version";
  const std::string no_object = "cannot read the request: the line is not a JSON object" + remedy;
  for (const char* junk : {"", "x", "1", "[]", "null", "\"status\"", "{", "{}x", "{\"command\":",
                           "{\"command\":\"status\"}}", "\xff\xfe", "{\"command\":\"\xff\"}"}) {
    EXPECT_EQ(request_complaint(junk), no_object) << junk;
  }
  const std::string ranks =
      "cannot read the request: ranks is not a list of ranks and [FIRST,LAST]" + remedy;
  for (const char* list : {"1", "[]", "\"0\"", "[-1]", "[1.5]", "[[1]]", "[[2,1]]", "[[1,2,3]]",
                           "[2147483648]", "[18446744073709551615]", "[[0,-1]]", "[null]", "{}"}) {
    EXPECT_EQ(request_complaint(std::string(R"({"command":"logs","ranks":)") + list + "}"), ranks)
        << list;
  }
  const std::string lines =
      "cannot read the request: lines is not a whole number in range" + remedy;
  for (const char* number : {"-1", "100001", "1.5", "\"1\"", "true", "18446744073709551615"}) {
    EXPECT_EQ(request_complaint(std::string(R"({"command":"logs","lines":)") + number + "}"), lines)
        << number;
  }
  EXPECT_EQ(request_complaint(R"({"command":"records","lines":4097})"), lines);
  EXPECT_EQ(request_complaint("{}"),
            "cannot read the request: command is not a command; the commands are status, signal, "
            "logs, records, stacks and dump" +
                remedy);
  EXPECT_EQ(request_complaint(R"({"command":1})"),
            "cannot read the request: command is not a string" + remedy);
  EXPECT_EQ(request_complaint(R"({"command":"logs","follow":1})"),
            "cannot read the request: follow is not true or false" + remedy);
  EXPECT_EQ(request_complaint(R"({"command":"signal","signal":"NONE"})"),
            "cannot read the request: signal is not the name of a signal" + remedy);
}

TEST(ControlRequest, HasASizeLimit) {
  const std::string padding(kRequestBytesMax, ' ');
  EXPECT_EQ(request_complaint("{\"command\":\"status\"}" + padding),
            "cannot read the request: it is longer than 65536 bytes; name fewer ranks");
  const std::string deep(60000, '[');
  EXPECT_NE(request_complaint("{\"ranks\":" + deep), "no complaint");
  std::string many = R"({"command":"logs","ranks":[0)";
  for (std::size_t i = 0; i < kRangesMax; ++i)
    many += ",0";
  EXPECT_NE(request_complaint(many + "]}"), "no complaint");
}

TEST(ControlReply, DecodesToWhatWasEncoded) {
  for (const Reply& reply : replies())
    EXPECT_EQ(decode_reply(without_newline(encode(reply))), Result<Reply>(reply));
}

TEST(ControlReply, IsPlainJson) {
  EXPECT_EQ(encode(Reply(Done{})), "{\"ok\":true,\"version\":1}\n");
  EXPECT_EQ(encode(Reply(Error{ExitCode::environment, "no"})),
            "{\"code\":121,\"error\":\"no\",\"ok\":false,\"version\":1}\n");
  EXPECT_EQ(encode(Request(DumpRequest{})), "{\"command\":\"dump\"}\n");
  EXPECT_EQ(encode(Reply(Dump{"/logs/dump_1.json", {}})),
            "{\"ok\":true,\"path\":\"/logs/dump_1.json\",\"unanswered\":[],\"version\":1}\n");
  EXPECT_EQ(encode(Reply(Records{{}, {"node-b: no answer"}})),
            "{\"ok\":true,\"records\":[],\"unanswered\":[\"node-b: no answer\"],\"version\":1}\n");
}

TEST(ControlReply, HasTheObjectsOfItsRanks) {
  EXPECT_NE(encode(Reply(Records{{some_records()}, {}})).find(encode(some_records())),
            std::string::npos);
  EXPECT_NE(encode(Reply(Stacks{{some_stacks()}, {}})).find(encode(some_stacks())),
            std::string::npos);
}

TEST(ControlReply, KeepsTheEndOfALongLog) {
  const std::string text = "the beginning" + std::string(kLogTextBytesMax - 4, 'x') + "end\n";
  const Result<Reply> reply =
      decode_reply(without_newline(encode(Reply(std::vector<LogText>{{0, text, text.size()}}))));
  EXPECT_EQ(reply, Result<Reply>(std::vector<LogText>{
                       {0, std::string(kLogTextBytesMax - 4, 'x') + "end\n", text.size()}}));
}

TEST(ControlReply, BecomesAnErrorIfItIsTooLong) {
  const std::vector<LogText> logs(300, LogText{0, std::string(kLogTextBytesMax, 'x'), 0});
  const std::string line = encode(Reply(logs));
  EXPECT_LT(line.size(), 300u);
  const Result<Reply> reply = decode_reply(without_newline(line));
  ASSERT_TRUE(reply && std::holds_alternative<Error>(*reply));
  EXPECT_EQ(std::get<Error>(*reply).code, ExitCode::environment);
}

TEST(ControlReply, ReplacesInvalidUtf8) {
  const Result<Reply> reply =
      decode_reply(without_newline(encode(Reply(std::vector<LogText>{{0,
                                                                      "a\xff"
                                                                      "b",
                                                                      3}}))));
  EXPECT_EQ(reply, Result<Reply>(std::vector<LogText>{{0,
                                                       "a\xef\xbf\xbd"
                                                       "b",
                                                       3}}));
}

TEST(ControlReply, IsRefusedIfMalformed) {
  const std::string remedy = "; use musterctl of the same version";
  for (const char* junk : {"", "HTTP/1.1 400 Bad Request", "{}", "{\"ok\":1}", "[true]"}) {
    EXPECT_EQ(complaint_about_reply(junk),
              "cannot read the job's answer: the line is not a reply of muster" + remedy)
        << junk;
  }
  for (const char* wrong : {R"({"ok":true,"status":1})",
                            R"({"ok":true,"status":{"pid":"x"}})",
                            R"({"ok":true,"status":{"pid":99999999999}})",
                            R"({"ok":true,"status":{"nodes":1}})",
                            R"({"ok":true,"status":{"nodes":[1]}})",
                            R"({"ok":true,"status":{"nodes":[{"host":1}]}})",
                            R"({"ok":true,"logs":{}})",
                            R"({"ok":true,"logs":[1]})",
                            R"({"ok":true,"logs":[{"rank":"x"}]})",
                            R"({"ok":true,"records":{}})",
                            R"({"ok":true,"records":[{"calls":[{"ordinal":"x"}]}]})",
                            R"({"ok":true,"stacks":[1]})",
                            R"({"ok":true,"stacks":[{"threads":[{"frames":[{"line":"x"}]}]}]})",
                            R"({"ok":true,"stacks":[],"unanswered":{}})",
                            R"({"ok":true,"stacks":[],"unanswered":[1]})",
                            R"({"ok":true,"logs":[{"position":-1}]})",
                            R"({"ok":false,"error":1})",
                            R"({"ok":false,"code":256})",
                            R"({"ok":true,"path":1})",
                            R"({"ok":true,"variables":[{"value":1}]})"}) {
    EXPECT_NE(complaint_about_reply(wrong), "no complaint") << wrong;
  }
  EXPECT_EQ(complaint_about_reply(std::string(kReplyBytesMax + 1, ' ')),
            "cannot read the job's answer: the line is not a reply: it is too long" + remedy);
}

// Any text, and any damaged line, yields a value or an error of one line.
RC_GTEST_PROP(ControlDecoders, AcceptOrRefuseAnyText, (const std::string& text)) {
  const auto request = decode_request(text);
  RC_ASSERT((request.has_value() || request.error().message.find('\n') == std::string::npos));
  const auto reply = decode_reply(text);
  RC_ASSERT((reply.has_value() || reply.error().message.find('\n') == std::string::npos));
}

RC_GTEST_PROP(ControlDecoders, SurviveDamage, ()) {
  std::string line = *rc::gen::arbitrary<bool>() ? encode(*rc::gen::elementOf(requests()))
                                                 : encode(*rc::gen::elementOf(replies()));
  const auto at = *rc::gen::inRange<std::size_t>(0, line.size());
  if (*rc::gen::arbitrary<bool>()) line.resize(at);
  if (at < line.size()) line[at] = *rc::gen::arbitrary<char>();
  const auto request = decode_request(line);
  const auto reply = decode_reply(line);
  RC_ASSERT((request.has_value() || !request.error().message.empty()));
  RC_ASSERT((reply.has_value() || !reply.error().message.empty()));
}

TEST(ControlRanks, AreAllIfNoneAreNamed) {
  EXPECT_TRUE(selects({}, 5));
  EXPECT_TRUE(selects({{0, 0}, {4, 6}}, 5));
  EXPECT_TRUE(selects({{5, 5}}, 5));
  EXPECT_FALSE(selects({{0, 4}, {6, 9}}, 5));
}

TEST(ControlSignals, HaveNamesAndNumbers) {
  for (const char* name : {"USR1", "SIGUSR1", "usr1", "sigusr1", "10", "SIG10"})
    EXPECT_EQ(signal_by_name(name), std::optional<int>(SIGUSR1)) << name;
  EXPECT_EQ(signal_by_name("RTMIN+1"), std::optional<int>(SIGRTMIN + 1));
  EXPECT_EQ(signal_by_name("KILL"), std::optional<int>(SIGKILL));
  for (const char* junk : {"", "SIG", "0", "-1", "65", "33", "USR3", "US", "signal 9", "1 0"})
    EXPECT_EQ(signal_by_name(junk), std::nullopt) << junk;
}

}  // namespace
}  // namespace muster::control
