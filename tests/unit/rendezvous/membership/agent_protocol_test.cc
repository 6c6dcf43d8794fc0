#include "rendezvous/membership/agent_protocol.h"

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "rendezvous/net/field_codec.h"
#include "tests/transcripts/agent_protocol_transcript.h"
#include "tests/unit/paths.h"
#include "tests/unit/rendezvous/membership/raw_agent.h"

namespace muster::membership {
namespace {

Join full_join() {
  Join join;
  join.agent = {0x0123456789abcdef, 0xfedcba9876543210};
  join.host_name = "node-10.cluster";
  join.machine = "boot/4026531840";
  join.node_rank = 3;
  join.slots = 8;
  join.role = "trainer";
  join.program = "train.py";
  join.arguments = "5d41402a";
  join.dialled = "fe80::1";
  join.advertised = "10.0.0.7";
  join.is_host = true;
  join.own_end = "[fe80::2%3]:41234";
  join.host_end = "[fe80::1%3]:29400";
  join.knows_owners = true;
  join.nodes_min = 2;
  join.nodes_max = 16;
  join.spares = 1;
  join.max_restarts = 3;
  join.max_membership_changes = 0;
  join.last_call = std::chrono::seconds{30};
  join.join_timeout = std::chrono::seconds{600};
  join.lease = std::chrono::milliseconds{3000};
  join.last_epoch = 12;
  join.last_instance = 0xfedcba;
  join.last_rank = 0;
  join.last_nodes = 4;
  join.restarts = 1;
  join.changes = 11;
  return join;
}

NodeFailure full_failure() {
  return {.rank = 9,
          .local_rank = 1,
          .exit_code = 134,
          .signal = 6,
          .final = true,
          .sentence = "killed by SIGABRT (core dumped)",
          .at = Instant{std::chrono::hours{9}},
          .at_error = std::chrono::microseconds{80}};
}

Evidence full_evidence() {
  return {.since = Instant{-std::chrono::hours{9}},
          .since_error = std::chrono::microseconds{70},
          .detail = std::string("opaque\0bytes\xff", 13)};
}

Verdict full_verdict() {
  return {.rank = 9,
          .local_rank = 1,
          .node_rank = 2,
          .host_name = "node-2",
          .exit_code = 134,
          .signal = 6,
          .sentence = "killed by SIGABRT (core dumped)",
          .detail = std::string("opaque\0bytes\xff", 13)};
}

Report full_report() {
  Report report;
  report.sequence = 77;
  report.order = 5;
  report.epoch = 12;
  report.phase = Phase::leaving;
  report.reaped = false;
  report.signal = 15;
  report.failure = full_failure();
  report.evidence = full_evidence();
  return report;
}

End full_end() {
  End end;
  end.why = EndWhy::failed;
  end.exit_code = 134;
  end.signal = 6;
  end.node_rank = 2;
  end.host_name = "node-2";
  end.text = "rank 9 on node-2 failed";
  end.verdict = full_verdict();
  end.restarts = 3;
  end.changes = 2;
  return end;
}

Datagram full_datagram() {
  return {.epoch = kEpochMax,
          .to = -1,
          .at = Instant{std::chrono::hours{9}},
          .at_error = std::chrono::microseconds{70},
          .payload = std::string(kDatagramBytesMax, '\xff')};
}

const std::vector<AgentMessage> kAgentMessages = {Hello{kProtocolVersion, "job 1", Nonce{1, 2, 3}},
                                                  Hello{},
                                                  Join{},
                                                  full_join(),
                                                  Report{},
                                                  full_report(),
                                                  Goodbye{},
                                                  Query{},
                                                  Query{0x0123456789abcdef},
                                                  Datagram{},
                                                  full_datagram(),
                                                  Belongs{},
                                                  Belongs{0x0123456789abcdef, true}};

std::vector<HostMessage> host_messages() {
  const Round round{7, 1, 4, 8, 32, 8, 32, "10.0.0.1", 29400, 2, 5};
  return {Challenge{Nonce{9}, true},
          Challenge{},
          Welcome{42, Mac{3}, std::chrono::seconds{3}, std::chrono::seconds{1}},
          Refused{RefusalKind::full, "too many"},
          Refused{RefusalKind::version, ""},
          Order{1, Wait{true, "a spare"}},
          Order{2, round},
          Order{3, Stop{7, StopWhy::host, "the host is new"}},
          Order{4, full_end()},
          Order{},
          Alive{99},
          Nodes{},
          Nodes{8, false, 3, {{0, "node-0", 0, 8, "running"}, {-1, "", 0, 1, "spare"}}},
          Delivered{},
          Delivered{kEpochMax, kNodesMax, Instant{std::chrono::hours{-9}},
                    std::chrono::microseconds{80}, std::string("opaque\0bytes\xff", 13)},
          WhoseIs{},
          WhoseIs{0x0123456789abcdef, "10.0.0.7:41236", "[fd00::1]:29400"}};
}

TEST(AgentProtocol, EncodesAndDecodesEveryMessage) {
  for (const AgentMessage& message : kAgentMessages) {
    FrameReader<AgentMessage> reader;
    reader.feed(bytes_of(message));
    EXPECT_EQ(reader.next().value(), message) << to_text(message);
    EXPECT_EQ(reader.next().value(), std::nullopt);
  }
  for (const HostMessage& message : host_messages()) {
    FrameReader<HostMessage> reader;
    reader.feed(bytes_of(message));
    EXPECT_EQ(reader.next().value(), message) << to_text(message);
    EXPECT_EQ(reader.next().value(), std::nullopt);
  }
}

constexpr std::string_view kSeedMark = "  # message\n";
constexpr size_t kSeedBytesMax = 400;

// Returns a seed in the form that tests/fuzz/run.py reads.
std::string seed_line(const std::string& bytes) {
  std::string line = "b'";
  for (const char c : bytes) {
    const bool plain = c >= ' ' && c <= '~' && c != '\'' && c != '\\';
    line += plain ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  }
  return line + "'" + std::string(kSeedMark);
}

template <typename Message>
void expect_seeds(const std::vector<Message>& messages, const char* file) {
  const std::string path = fmt::format("{}/{}", paths::kFuzzCorpus, file);
  std::ifstream corpus(path);
  std::string stale{std::istreambuf_iterator<char>(corpus), {}};
  for (const Message& message : messages) {
    const std::string line = seed_line(bytes_of(message));
    if (line.size() > kSeedBytesMax * 4) continue;
    const size_t at = stale.find(line);
    EXPECT_NE(at, stale.npos) << "add to " << path << ":\n" << line;
    if (at != stale.npos) stale.erase(at, line.size());
  }
  EXPECT_EQ(stale.find(kSeedMark), stale.npos) << "remove from " << path << ":\n" << stale;
}

TEST(AgentProtocol, SeedsTheFuzzersWithItsMessages) {
  expect_seeds(kAgentMessages, "agent_message.txt");
  expect_seeds(host_messages(), "host_message.txt");
}

// PROTOCOL.md defines the format: these bytes may change only with the version.
TEST(AgentProtocol, EncodesAReport) {
  Report report;
  report.sequence = 0x0102;
  report.order = 3;
  report.epoch = 4;
  report.phase = Phase::stopping;
  report.reaped = false;
  const std::string expected(
      "\x22\0\0\0\x03"        // 34 bytes follow; a Report
      "\x02\x01\0\0\0\0\0\0"  // sequence
      "\x03\0\0\0\0\0\0\0"    // order
      "\x04\0\0\0\0\0\0\0"    // epoch
      "\x02\0"                // stopping, not reaped
      "\0\0\0\0\0\0\0",       // no signal, not to all, no failure, no evidence
      38);
  EXPECT_EQ(bytes_of(AgentMessage{report}), expected);
}

TEST(AgentProtocol, EncodesHelloAndAlive) {
  const std::string hello = bytes_of(AgentMessage{Hello{3, "ab", Nonce{0xff}}});
  EXPECT_EQ(hello, std::string("\x1a\0\0\0\x01\x03\0\x02\0\0\0ab\xff", 14) + std::string(16, '\0'));
  EXPECT_EQ(
      bytes_of(HostMessage{Alive{5, 6, Instant{Duration{7}}}}),
      std::string("\x19\0\0\0\x45\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0", 29));
}

TEST(AgentProtocol, EncodesADatagramAndItsDelivery) {
  const Instant at{Duration{7}};
  EXPECT_EQ(bytes_of(AgentMessage{Datagram{5, -1, at, Duration{8}, "ab"}}),
            std::string("\x23\0\0\0\x06\x05\0\0\0\0\0\0\0\xff\xff\xff\xff"
                        "\x07\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\x02\0\0\0ab",
                        39));
  EXPECT_EQ(bytes_of(HostMessage{Delivered{5, 9, at, Duration{8}, "ab"}}),
            std::string("\x23\0\0\0\x47\x05\0\0\0\0\0\0\0\x09\0\0\0"
                        "\x07\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\x02\0\0\0ab",
                        39));
}

TEST(AgentProtocol, EncodesAnOwnerQuestionAndItsAnswer) {
  EXPECT_EQ(bytes_of(HostMessage{WhoseIs{5, "a:1", "b:2"}}),
            std::string("\x17\0\0\0\x48\x05\0\0\0\0\0\0\0\x03\0\0\0a:1\x03\0\0\0b:2", 27));
  EXPECT_EQ(bytes_of(AgentMessage{Belongs{5, true}}),
            std::string("\x0a\0\0\0\x07\x05\0\0\0\0\0\0\0\x01", 14));
}

TEST(AgentProtocol, DecodesBytesInAnyPortions) {
  std::string stream;
  for (const AgentMessage& message : kAgentMessages)
    encode(message, stream);
  for (const size_t portion : {size_t{1}, size_t{3}, size_t{64}, stream.size()}) {
    FrameReader<AgentMessage> reader;
    std::vector<AgentMessage> got;
    for (size_t at = 0; at < stream.size(); at += portion) {
      reader.feed(std::string_view(stream).substr(at, portion));
      while (auto message = reader.next().value())
        got.push_back(*message);
    }
    EXPECT_EQ(got, kAgentMessages) << "portions of " << portion;
  }
}

TEST(AgentProtocol, ReadsOnlyTheNumberOfAnotherVersion) {
  std::string frame = bytes_of(AgentMessage{Hello{kProtocolVersion, "job", {}}});
  frame[5] = 77;             // The version.
  frame.append("whatever");  // Unknown fields.
  frame[0] = static_cast<char>(frame[0] + 8);
  FrameReader<AgentMessage> reader;
  reader.feed(frame);
  EXPECT_EQ(reader.next().value(), AgentMessage(Hello{77, "", {}}));
}

TEST(AgentProtocol, CutsALongTextBetweenCharacters) {
  Refused refused{RefusalKind::closed, std::string(kTextBytesMax - 1, 'x') + "\xc3\xa4 and more"};
  FrameReader<HostMessage> reader;
  reader.feed(bytes_of(HostMessage{refused}));
  EXPECT_EQ(reader.next().value(),
            HostMessage(Refused{RefusalKind::closed, std::string(kTextBytesMax - 1, 'x')}));
}

TEST(AgentProtocol, FitsTheLargestEndIntoAFrame) {
  End end = full_end();
  end.host_name.assign(2 * kNameBytesMax, 'h');
  end.text.assign(2 * kTextBytesMax, 't');
  end.verdict->sentence.assign(2 * kTextBytesMax, 's');
  end.verdict->detail.assign(2 * kDetailBytesMax, 'd');
  const std::string frame = bytes_of(HostMessage{Order{1, end}});
  EXPECT_LE(frame.size(), kFrameBytesMax);
  FrameReader<HostMessage> reader;
  reader.feed(frame);
  const HostMessage got = reader.next().value().value();
  EXPECT_EQ(std::get<End>(std::get<Order>(got).what).verdict->detail,
            std::string(kDetailBytesMax, 'd'));
}

TEST(AgentProtocol, RefusesLargeFramesOfUnauthenticatedPeers) {
  FrameReader<AgentMessage> reader(kStrangerFrameBytesMax);
  reader.feed(bytes_of(AgentMessage{full_join()}));
  EXPECT_EQ(reader.next().value(), AgentMessage(full_join()));
  Report large = full_report();
  large.evidence->detail.assign(kStrangerFrameBytesMax, 'd');
  FrameReader<AgentMessage> trusting(kStrangerFrameBytesMax);
  trusting.allow_frames_of(kFrameBytesMax);
  trusting.feed(bytes_of(AgentMessage{large}));
  EXPECT_EQ(trusting.next().value(), AgentMessage(large));
  reader.feed(bytes_of(AgentMessage{large}).substr(0, 4));
  const auto refused = reader.next();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ExitCode::rendezvous);
}

struct Broken {
  const char* name;
  std::string bytes;
  const char* says;
};

std::string frame_of(uint8_t type, const std::string& fields) {
  std::string frame;
  const size_t length = fields.size() + 1;
  for (size_t i = 0; i < 4; ++i)
    frame.push_back(static_cast<char>(length >> (8 * i)));
  frame.push_back(static_cast<char>(type));
  return frame + fields;
}

TEST(AgentProtocol, RefusesAMalformedFrameAndAllThatFollows) {
  const std::string report = bytes_of(AgentMessage{Report{}}).substr(5);
  std::string no_flag = report;
  no_flag[25] = 2;
  std::string no_phase = report;
  no_phase[24] = 6;
  const std::string kVersion(1, static_cast<char>(kProtocolVersion));
  const Broken cases[] = {
      {"an empty frame", std::string(4, '\0'), "a frame of 0 bytes"},
      {"a huge frame", std::string("\xff\xff\xff\xff", 4), "a frame of 4294967295 bytes"},
      {"HTTP", "GET / HTTP/1.1\r\n\r\n", "a frame of 542393671 bytes"},
      {"an unknown type", frame_of(64, ""), "unknown type 64"},
      {"a message of the other side", bytes_of(HostMessage{Alive{1}}), "unknown type 69"},
      {"too short", frame_of(3, report.substr(1)), "fewer bytes than it should have"},
      {"too long", frame_of(3, report + "x"), "more bytes than it should have"},
      {"a flag of 2", frame_of(3, no_flag), "a flag that is neither 0 nor 1"},
      {"an unknown phase", frame_of(3, no_phase), "an unknown kind"},
      {"a text longer than allowed", frame_of(1, kVersion + std::string("\0\xff\xff\0\0", 5)),
       "a text that is too long"},
      {"a text longer than the frame", frame_of(1, kVersion + std::string("\0\x09\0\0\0ab", 7)),
       "fewer bytes than it should have"},
  };
  for (const Broken& broken : cases) {
    FrameReader<AgentMessage> reader;
    reader.feed(broken.bytes);
    const auto refused = reader.next();
    ASSERT_FALSE(refused) << broken.name;
    EXPECT_NE(refused.error().message.find(broken.says), std::string::npos)
        << broken.name << ": " << refused.error().message;
    reader.feed(bytes_of(AgentMessage{Goodbye{}}));
    EXPECT_FALSE(reader.next()) << broken.name;
  }
}

TEST(AgentProtocol, RefusesNumbersThatCouldOverflowASum) {
  const auto is_refused = [](const Join& join) {
    FrameReader<AgentMessage> reader;
    reader.feed(bytes_of(AgentMessage{join}));
    return !reader.next().has_value();
  };
  EXPECT_FALSE(is_refused(full_join()));
  const auto with = [](auto change) {
    Join join = full_join();
    change(join);
    return join;
  };
  EXPECT_TRUE(is_refused(with([](Join& j) { j.slots = 0; })));
  EXPECT_TRUE(is_refused(with([](Join& j) { j.slots = kSlotsMax + 1; })));
  EXPECT_TRUE(is_refused(with([](Join& j) { j.nodes_min = 0; })));
  EXPECT_TRUE(is_refused(with([](Join& j) { j.nodes_max = kNodesMax + 1; })));
  EXPECT_TRUE(is_refused(with([](Join& j) { j.node_rank = -1; })));
  EXPECT_TRUE(is_refused(with([](Join& j) { j.last_rank = -2; })));
  EXPECT_TRUE(is_refused(with([](Join& j) { j.last_epoch = kEpochMax + 1; })));
  EXPECT_TRUE(is_refused(with([](Join& j) { j.restarts = -1; })));
  EXPECT_TRUE(is_refused(with([](Join& j) { j.lease = Duration{-1}; })));
  EXPECT_TRUE(is_refused(with([](Join& j) { j.max_membership_changes = -1; })));
}

TEST(AgentProtocol, RefusesADatagramOutOfItsLimits) {
  const auto says = [](uint64_t epoch, int to, int64_t at, int64_t error, size_t payload) {
    std::string body;
    FieldWriter writer(body);
    writer.integer(epoch);
    writer.integer(to);
    writer.integer(at);
    writer.integer(error);
    writer.text(std::string(payload, 'x'), payload);
    FrameReader<AgentMessage> reader;
    reader.feed(frame_of(6, body));
    const auto message = reader.next();
    if (message) return std::string("nothing");
    return message.error().message.substr(message.error().message.find("type 6 with "));
  };
  EXPECT_EQ(says(kEpochMax, -1, 0, 0, kDatagramBytesMax), "nothing");
  EXPECT_EQ(says(kEpochMax, kNodesMax, 0, 0, 0), "nothing");
  const std::string rest = "; all nodes must run the same version of muster";
  EXPECT_EQ(says(kEpochMax + 1, 0, 0, 0, 0), "type 6 with an epoch out of its range" + rest);
  EXPECT_EQ(says(1, -2, 0, 0, 0), "type 6 with a number out of its range" + rest);
  EXPECT_EQ(says(1, kNodesMax + 1, 0, 0, 0), "type 6 with a number out of its range" + rest);
  EXPECT_EQ(says(1, 0, int64_t{1} << 61, 0, 0), "type 6 with an instant out of its range" + rest);
  EXPECT_EQ(says(1, 0, 0, -1, 0), "type 6 with a negative duration" + rest);
  EXPECT_EQ(says(1, 0, 0, 0, kDatagramBytesMax + 1), "type 6 with a text that is too long" + rest);
}

TEST(AgentProtocol, PrintsEachMessageInOneLine) {
  Join join = full_join();
  join.host_name = "bad\nname\x1b[31m";
  EXPECT_EQ(
      to_text(AgentMessage{join}),
      "Join{agent 123456789abcdef-fedcba9876543210, host \"bad\\x0aname\\x1b[31m\", node rank "
      "3, 8 slots, role \"trainer\", dialled \"fe80::1\", advertised \"10.0.0.7\", host, nodes "
      "2:16 + 1, 3 restarts, 0 changes, last call 30 s, join time-out 600 s, lease 3 s; was "
      "rank 0 of 4 in epoch 12 of fedcba, 1 restarts and 11 changes so far}");
  EXPECT_EQ(to_text(AgentMessage{full_report()}),
            "Report{77, order 5, epoch 12, leaving, signal 15, failure{rank 9 local 1, exit 134, "
            "final, \"killed by SIGABRT (core dumped)\"}, evidence of 13 bytes}");
  EXPECT_EQ(to_text(HostMessage{Order{3, Stop{7, StopWhy::lost, "b was lost"}}}),
            "Order{3, Stop{epoch 7, lost, \"b was lost\"}}");
  EXPECT_EQ(to_text(AgentMessage{Datagram{7, -1, {}, {}, "a\nb"}}),
            "Datagram{epoch 7, to -1, 3 bytes}");
  EXPECT_EQ(to_text(HostMessage{Delivered{7, 2, {}, {}, "a\nb"}}),
            "Delivered{epoch 7, from 2, 3 bytes}");
  EXPECT_EQ(to_text(HostMessage{WhoseIs{7, "10.0.0.7:1\n", "10.0.0.1:2"}}),
            "WhoseIs{7, \"10.0.0.7:1\\x0a\" at \"10.0.0.1:2\"}");
  EXPECT_EQ(to_text(AgentMessage{Belongs{7, true}}), "Belongs{7, to the job}");
}

RC_GTEST_PROP(AgentProtocolProperty, ArbitraryBytesGiveNoMoreMessagesThanFit,
              (const std::string& bytes)) {
  FrameReader<AgentMessage> reader;
  reader.feed(bytes);
  size_t messages = 0;
  while (true) {
    const auto message = reader.next();
    if (!message || !*message) break;
    ++messages;
  }
  RC_ASSERT(messages * 5 <= bytes.size());
}

// A good frame with one changed byte gives an error or a message that encodes to the same bytes.
RC_GTEST_PROP(AgentProtocolProperty, ADecodedMessageIsEncodedTheSame, ()) {
  const auto which = *rc::gen::inRange<size_t>(0, host_messages().size());
  std::string frame = bytes_of(host_messages()[which]);
  const auto at = *rc::gen::inRange<size_t>(0, frame.size());
  frame[at] = *rc::gen::arbitrary<char>();
  FrameReader<HostMessage> reader;
  reader.feed(frame);
  const auto message = reader.next();
  if (!message || !*message) return;
  const std::string again = bytes_of(**message);
  RC_ASSERT(frame.substr(0, again.size()) == again);
}

}  // namespace
}  // namespace muster::membership
