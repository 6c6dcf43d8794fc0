// The host's table of all nodes, as shown to a user.
#include <csignal>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "rendezvous/membership/membership_text.h"
#include "tests/transcripts/agent_protocol_transcript.h"
#include "tests/unit/rendezvous/membership/membership_harness.h"

namespace muster {
namespace {

using namespace membership;  // NOLINT: the words of the protocol
using std::chrono::milliseconds;
using std::chrono::seconds;
using Lines = std::vector<NodeLine>;

Lines nodes_of(MembershipDriver& m) {
  return m.machine().nodes(m.now());
}

// Returns lines such as "0 a 0+1 running", joined by " | ".
std::string table_of(MembershipDriver& m) {
  std::vector<std::string> rows;
  for (const NodeLine& line : nodes_of(m)) {
    rows.push_back(fmt::format("{} {} {}+{} {}", line.node_rank, line.host, line.first_rank,
                               line.workers, line.state));
  }
  return fmt::format("{}", fmt::join(rows, " | "));
}

TEST(MembershipNodes, AreEmptyBeforeTheFirstJoin) {
  MembershipDriver m(2, 2);
  EXPECT_EQ(nodes_of(m), Lines{});
}

TEST(MembershipNodes, AreSortedByRankAndThenByName) {
  MembershipDriver m(2, 2);
  for (const char* name : {"n10", "n2"}) {
    m.job.slots = name == std::string("n2") ? 4 : 2;
    m.join(name);
    m.ready(name);
  }
  m.open_store(1);
  m.running("n2", 1);
  m.running("n10", 1);
  m.job.slots = 1;
  for (const char* name : {"n12", "n1"}) {
    m.join(name);
    m.ready(name);
  }
  const Lines expected = {{0, "n2", 0, 4, "running"},
                          {1, "n10", 4, 2, "running"},
                          {-1, "n1", 0, 1, "spare"},
                          {-1, "n12", 0, 1, "spare"}};
  EXPECT_EQ(nodes_of(m), expected);
}

Join join_as(const MembershipDriver& m, uint64_t agent, const std::string& host_name,
             const std::string& address, const std::string& machine) {
  Join join = m.job;
  join.agent = {1, agent};
  join.host_name = host_name;
  join.advertised = address;
  join.machine = machine;
  return join;
}

TEST(MembershipNodes, AreDistinguishedByAddressIfNamesAreEqual) {
  MembershipDriver m(4, 4);
  Join host = join_as(m, 1, "pod", "127.0.0.1", "A");
  host.is_host = true;
  host.dialled = "127.0.0.1";
  m.step(Joined{1, host});
  m.step(Joined{2, join_as(m, 2, "other", "10.0.0.9", "B")});
  m.job.arguments = "2";
  EXPECT_EQ(m.hear(Joined{3, join_as(m, 3, "pod", "10.0.0.7", "C")}),
            "Say{pod (10.0.0.7) runs the program with other arguments than pod (10.0.0.1)}");
  EXPECT_EQ(
      m.status(),
      "0 of 4 nodes; not ready yet: other, pod (10.0.0.1), pod (10.0.0.7); gives up in 600 s");
}

TEST(MembershipNodes, HaveOneNamePerMachineFromAnyAddress) {
  MembershipDriver m(5, 5);
  Join host = join_as(m, 1, "vm", "127.0.0.1", "A");
  host.is_host = true;
  host.dialled = "127.0.0.1";
  m.step(Joined{1, host});
  m.step(Joined{2, join_as(m, 2, "vm", "10.0.0.1", "A")});
  m.step(Joined{3, join_as(m, 3, "vm", "fd00::1", "A")});
  EXPECT_EQ(m.status(), "0 of 5 nodes; not ready yet: vm, vm, vm; gives up in 600 s");
  m.step(Joined{4, join_as(m, 4, "vm", "10.0.0.2", "B")});
  m.step(Joined{5, join_as(m, 5, "vm", "fd00::2", "B")});
  EXPECT_EQ(m.status(),
            "0 of 5 nodes; not ready yet: vm (10.0.0.1), vm (10.0.0.1), vm (10.0.0.1), vm "
            "(10.0.0.2), vm (10.0.0.2); gives up in 600 s");
}

TEST(MembershipNodes, ShowEachNodesStateInEveryStage) {
  MembershipDriver m(2, 2);
  m.job.max_restarts = 1;
  m.join("a");
  EXPECT_EQ(table_of(m), "-1 a 0+1 connected");
  m.ready("a");
  m.join("b");
  EXPECT_EQ(table_of(m), "-1 a 0+1 ready | -1 b 0+1 connected");
  m.ready("b");
  EXPECT_EQ(table_of(m), "0 a 0+1 starting | 1 b 1+1 starting");
  m.open_store(1);
  m.running("a", 1);
  EXPECT_EQ(table_of(m), "0 a 0+1 running | 1 b 1+1 starting");
  m.running("b", 1);
  m.done("a", 1);
  EXPECT_EQ(table_of(m), "0 a 0+1 done | 1 b 1+1 running");
  m.fail("b", 1, boom(1));
  EXPECT_EQ(table_of(m), "0 a 0+1 stopping | 1 b 1+1 stopping");
  m.ready("a", 1);
  EXPECT_EQ(table_of(m), "0 a 0+1 ready | 1 b 1+1 stopping");
  m.stopping("b", 1);
  EXPECT_EQ(table_of(m), "0 a 0+1 ready | 1 b 1+1 stopping");
  m.ready("b", 1);
  m.open_store(2);
  m.running("a", 2);
  m.running("b", 2);
  m.done("a", 2);
  m.done("b", 2);
  EXPECT_EQ(table_of(m), "0 a 0+1 done | 1 b 1+1 done");
}

TEST(MembershipNodes, ShowANodeAsStoppingAfterAnOutdatedReady) {
  MembershipDriver m(1, 2);
  m.job.max_restarts = 1;
  m.join("a");
  m.join("b");
  m.ready("a");
  m.ready("b");
  m.open_store(1);
  m.fail("a", 1, boom(0));
  m.lose_order("b");
  m.ready("b");
  EXPECT_EQ(table_of(m), "0 a 0+1 stopping | 1 b 1+1 stopping");
}

TEST(MembershipNodes, ShowLeavingAndDepartedNodes) {
  MembershipDriver m(1, 2);
  m.run({"a", "b"});
  m.join("c");
  m.ready("c");
  m.leaving("b", 1, SIGTERM, false);
  m.leaving("c", 0, SIGTERM, true);
  EXPECT_EQ(table_of(m), "0 a 0+1 stopping | 1 b 1+1 leaving | -1 c 0+1 leaving");
  m.leaving("b", 1, SIGTERM, true);
  EXPECT_EQ(table_of(m), "0 a 0+1 stopping | 1 b 1+1 has left | -1 c 0+1 leaving");
  m.goodbye("b");
  EXPECT_EQ(table_of(m), "0 a 0+1 stopping | -1 c 0+1 leaving");
}

TEST(MembershipNodes, ShowHowLongANodeHasBeenSilentOrAway) {
  MembershipDriver m(2, 3);
  m.job.last_call = Duration{};
  m.run({"a", "b"});
  m.pass(milliseconds{1500});
  EXPECT_EQ(table_of(m), "0 a 0+1 running | 1 b 1+1 running");
  m.running("a", 1);
  m.pass(milliseconds{1234});
  EXPECT_EQ(table_of(m), "0 a 0+1 running | 1 b 1+1 silent for 2.7 s");
  m.running("a", 1);
  m.running("b", 1);
  m.disconnect("b");
  m.pass(milliseconds{150});
  EXPECT_EQ(table_of(m), "0 a 0+1 running | 1 b 1+1 not connected for 0.1 s");
  m.live(seconds{3}, {"a"});
  EXPECT_EQ(table_of(m), "0 a 0+1 stopping");
}

TEST(MembershipNodes, ShowANodeThatWaitsForARank) {
  MembershipDriver m(1, 2);
  m.job.node_rank = 0;
  m.join("a");
  m.ready("a");
  m.disconnect("a");
  m.join("a.2");
  m.ready("a.2");
  EXPECT_EQ(table_of(m), "-1 a 0+1 not connected for 0.0 s | -1 a 0+1 waits for its node rank");
}

TEST(MembershipNodes, ShowAStrayOfAnotherRoundAsStopping) {
  MembershipDriver m(1, 2);
  m.job.last_call = Duration{};
  m.run({"a"});
  m.job.last_epoch = 7;
  m.job.last_instance = 9;
  m.join("b");
  m.running("b", 7);
  EXPECT_EQ(table_of(m), "0 a 0+1 running | -1 b 0+1 stopping");
}

TEST(MembershipNodes, KeepNamesUnescaped) {
  MembershipDriver m(1, 1);
  m.join("a\n\x1b[31m");
  EXPECT_EQ(nodes_of(m)[0].host, "a\n\x1b[31m");
}

TEST(MembershipNodes, ShowNoSilenceIfTheClockIsBehind) {
  MembershipDriver m(1, 1);
  m.pass(seconds{5});
  m.run({"a"});
  EXPECT_EQ(m.machine().nodes(m.now() - seconds{3})[0].state, "running");
}

// ---- Parts of an answer.

Lines many_lines(size_t count, const std::string& host = "node") {
  Lines lines;
  for (size_t i = 0; i < count; ++i)
    lines.push_back({static_cast<int>(i), host, static_cast<int>(8 * i), 8, "running"});
  return lines;
}

Lines all_of(const std::vector<Nodes>& parts) {
  Lines lines;
  for (const Nodes& part : parts)
    lines.insert(lines.end(), part.lines.begin(), part.lines.end());
  return lines;
}

TEST(NodesAnswer, IsOneEmptyPartForNoNodes) {
  EXPECT_EQ(nodes_answer(7, {}), std::vector<Nodes>{(Nodes{7, true, 0, {}})});
}

TEST(NodesAnswer, IsOnePartForAFewNodes) {
  EXPECT_EQ(nodes_answer(7, many_lines(256)),
            std::vector<Nodes>{(Nodes{7, true, 0, many_lines(256)})});
}

TEST(NodesAnswer, IsSplitForManyNodesAndMarksTheLastPart) {
  const std::vector<Nodes> parts = nodes_answer(7, many_lines(600));
  ASSERT_EQ(parts.size(), 3u);
  for (const Nodes& part : parts) {
    EXPECT_EQ(part.query, 7u);
    EXPECT_EQ(part.last, &part == &parts.back());
    EXPECT_EQ(part.left_out, 0);
  }
  EXPECT_EQ(parts[2].lines.size(), 600u - 512u);
  EXPECT_EQ(all_of(parts), many_lines(600));
}

TEST(NodesAnswer, IsBoundedAndCountsTheLinesLeftOut) {
  const std::string long_name(kNameBytesMax, 'n');
  for (const std::string& name : {std::string("node"), long_name}) {
    const size_t count = 65536;
    const std::vector<Nodes> parts = nodes_answer(1, many_lines(count, name));
    size_t bytes = 0;
    for (const Nodes& part : parts) {
      std::string frame;
      encode(HostMessage{part}, frame);
      bytes += frame.size();
    }
    EXPECT_LE(bytes, kNodesBytesMax + 64 * parts.size());
    EXPECT_GT(bytes, kNodesBytesMax - 2 * kNameBytesMax);
    EXPECT_EQ(all_of(parts).size() + static_cast<size_t>(parts.back().left_out), count);
  }
}

TEST(NodesAnswer, FitsIntoAFrameWithTheLongestLines) {
  Lines lines = many_lines(kLinesInPart, std::string(5 * kNameBytesMax, 'n'));
  for (NodeLine& line : lines)
    line.state.assign(5 * kStateBytesMax, 's');
  for (const Nodes& part : nodes_answer(1, lines)) {
    std::string frame;
    encode(HostMessage{part}, frame);
    FrameReader<HostMessage> reader;
    reader.feed(frame);
    ASSERT_TRUE(reader.next().has_value());
  }
}

TEST(NodesAnswer, IsRefusedIfAPartHasTooManyLines) {
  std::string frame;
  encode(HostMessage{Nodes{1, true, 0, many_lines(kLinesInPart + 1)}}, frame);
  FrameReader<HostMessage> reader;
  reader.feed(frame);
  const auto refused = reader.next();
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("a list that is too long"), std::string::npos);
}

TEST(NodesAnswer, IsRefusedIfItClaimsLinesThatItLacks) {
  std::string frame;
  encode(HostMessage{Nodes{1, true, 0, {}}}, frame);
  frame[frame.size() - 4] = 100;  // The count.
  FrameReader<HostMessage> reader;
  reader.feed(frame);
  EXPECT_FALSE(reader.next());
}

TEST(NodesAnswer, IsOneLineInATranscript) {
  EXPECT_EQ(to_text(HostMessage{Nodes{7, true, 2, {{0, "a\nb", 0, 8, "running"}}}}),
            "Nodes{7, node 0 \"a\\x0ab\" ranks 0+8 \"running\", 2 left out}");
  EXPECT_EQ(to_text(HostMessage{Nodes{7, false, 0, {}}}), "Nodes{7, more}");
  EXPECT_EQ(to_text(AgentMessage{Query{9}}), "Query{9}");
}

}  // namespace
}  // namespace muster
