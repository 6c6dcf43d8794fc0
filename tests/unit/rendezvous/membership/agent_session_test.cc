#include "rendezvous/membership/agent_session.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "rendezvous/membership/job_token.h"
#include "tests/unit/rendezvous/membership/raw_agent.h"
#include "tests/unit/rendezvous/net/addresses.h"
#include "tests/unit/rendezvous/net/socket_harness.h"

namespace muster {
namespace {

using membership::AgentMessage;
using membership::Alive;
using membership::Challenge;
using membership::FrameSeal;
using membership::Goodbye;
using membership::Hello;
using membership::HostMessage;
using membership::Join;
using membership::Query;
using membership::RefusalKind;
using membership::Refused;
using membership::Report;
using membership::Welcome;

constexpr std::string_view kToken = "a secret of the job";

std::string sealed_frame(const AgentMessage& message, FrameSeal& seal) {
  std::string bytes = bytes_of(message);
  seal.close(bytes);
  return bytes;
}

Hello hello_of(const std::string& job) {
  Hello hello;
  hello.job_id = job;
  hello.nonce.fill(7);
  return hello;
}

Join join_of_agent(uint64_t number) {
  Join join;
  join.agent = {number, number};
  join.host_name = "node3";
  return join;
}

struct SessionEnd {
  std::string why;
  bool refused = false;
  friend bool operator==(const SessionEnd&, const SessionEnd&) = default;
};

// The host's session; the test drives the agent's end of the connection.
class AgentSessionTest : public testing::Test {
 protected:
  // Starts the session with these bytes after the magic.
  void start(std::string_view token = "", const std::string& early = "") {
    int ends[2] = {-1, -1};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    agent_ = std::make_unique<ByteStream>(loop_, ends[1], size_t{16} << 20);
    agent_->start({[this](std::string_view bytes) { on_bytes(bytes); },
                   [this](const std::string&) { is_cut_off_ = true; }});
    Arrival arrival{UniqueFd(ends[0]), std::string(membership::kMagic) + early,
                    socket_at("10.0.0.7:4711")};
    session_ = std::make_shared<AgentSession>(
        loop_, std::move(arrival),
        AgentSession::Options{
            std::string(token), 42, "host", "job", only_own_job_, {}, size_t{1} << 20});
    session_->start(
        {[this](const Join& join) { joins_.push_back(join); },
         [this](const AgentMessage& message) { messages_.push_back(message); },
         [this](const std::string& why, bool refused) { ends_.push_back({why, refused}); }});
  }
  void say(const AgentMessage& message) { agent_->write(bytes_of(message)); }
  void turn(const std::function<bool()>& done, const char* what) { turn_until(loop_, done, what); }
  void turn_until_over() {
    turn([this] { return is_cut_off_ && !ends_.empty(); }, "the session is over");
  }
  Challenge challenge() {
    turn([this] { return !heard_.empty(); }, "the challenge comes");
    const auto* challenge = heard_.empty() ? nullptr : std::get_if<Challenge>(&heard_.front());
    EXPECT_NE(challenge, nullptr);
    return challenge == nullptr ? Challenge() : *challenge;
  }
  // Performs the handshake.
  void join() {
    start();
    say(hello_of("job"));
    challenge();
    say(join_of_agent(1));
    turn([this] { return !joins_.empty(); }, "the agent joins");
  }
  // Performs the handshake with a token; returns the seal of the agent's next frame.
  FrameSeal join_sealed() {
    joins_.clear(), messages_.clear(), ends_.clear(), heard_.clear();
    reader_ = membership::FrameReader<HostMessage>();
    start(kToken);
    say(hello_of("job"));
    membership::FrameSeals seals =
        membership::frame_seals(kToken, "job", hello_of("job").nonce, challenge().nonce);
    reader_.expect(seals.host);
    agent_->write(sealed_frame(join_of_agent(1), seals.agent));
    turn([this] { return !joins_.empty(); }, "the agent joins");
    return seals.agent;
  }

  boost::asio::io_context loop_;
  std::unique_ptr<ByteStream> agent_;
  std::vector<HostMessage> heard_;  // Received by the agent.
  bool is_cut_off_ = false;
  bool only_own_job_ = false;
  std::shared_ptr<AgentSession> session_;
  std::vector<Join> joins_;
  std::vector<AgentMessage> messages_;
  std::vector<SessionEnd> ends_;
  membership::FrameReader<HostMessage> reader_;  // On the agent's side.

 private:
  void on_bytes(std::string_view bytes) {
    reader_.feed(bytes);
    while (true) {
      const auto message = reader_.next();
      ASSERT_TRUE(message);
      if (!*message) return;
      heard_.push_back(**message);
    }
  }
};

TEST_F(AgentSessionTest, AcceptsAnAgentThatProvesTheToken) {
  join_sealed();
  EXPECT_TRUE(std::get<Challenge>(heard_.front()).token);
  EXPECT_EQ(joins_, std::vector<Join>{join_of_agent(1)});
  EXPECT_TRUE(session_->is_joined());
  EXPECT_EQ(session_->job_id(), "job");
  EXPECT_EQ(session_->peer(), ip("10.0.0.7"));
  EXPECT_TRUE(ends_.empty());
}

// Wrong token, another job, an earlier connection, the host's own seal, a second frame, or no seal.
TEST_F(AgentSessionTest, RefusesAJoinWithAWrongSeal) {
  const std::string refusal =
      "the job token of this node is not the host's: give all nodes the same --rdzv-token-file or "
      "MUSTER_TOKEN";
  const membership::Nonce ours = hello_of("job").nonce;
  const std::string join = bytes_of(join_of_agent(1));
  const auto by = [](FrameSeal seal, std::string frame) {
    seal.close(frame);
    return frame;
  };
  using Make = std::function<std::string(const membership::Nonce& host)>;
  const std::vector<Make> wrong = {
      [&](const auto& h) {
        return by(membership::frame_seals("guess", "job", ours, h).agent, join);
      },
      [&](const auto& h) {
        return by(membership::frame_seals(kToken, "other", ours, h).agent, join);
      },
      [&](const auto&) {
        return by(membership::frame_seals(kToken, "job", ours, ours).agent, join);
      },
      [&](const auto& h) { return by(membership::frame_seals(kToken, "job", ours, h).host, join); },
      [&](const auto& h) {
        FrameSeal seal = membership::frame_seals(kToken, "job", ours, h).agent;
        sealed_frame(join_of_agent(1), seal);
        return sealed_frame(join_of_agent(1), seal);
      },
      [&](const auto&) { return join; },
      [&](const auto&) { return by(FrameSeal({}), bytes_of(Goodbye())); }};
  for (const Make& make : wrong) {
    heard_.clear(), ends_.clear(), is_cut_off_ = false;
    start(kToken);
    say(hello_of("job"));
    agent_->write(make(challenge().nonce));
    turn_until_over();
    EXPECT_EQ(heard_.back(), HostMessage(Refused{RefusalKind::token, refusal}));
    EXPECT_EQ(ends_, (std::vector<SessionEnd>{{refusal, true}}));
    EXPECT_TRUE(joins_.empty());
  }
}

TEST_F(AgentSessionTest, RefusesSealedFramesIfThereIsNoToken) {
  start();
  say(hello_of("job"));
  EXPECT_FALSE(challenge().token);
  FrameSeal seal({});
  agent_->write(sealed_frame(join_of_agent(1), seal));
  turn_until_over();
  EXPECT_NE(ends_.at(0).why.find("a frame of unknown type 130"), std::string::npos);
  EXPECT_TRUE(joins_.empty());
}

// Neither a frame that is tampered with on the way nor any frame after it is believed.
TEST_F(AgentSessionTest, EndsAtAFrameThatIsNotTheAgentsNext) {
  using Change = std::function<std::string(FrameSeal&)>;
  const std::vector<Change> changes = {
      [](FrameSeal& seal) {  // Altered.
        std::string frame = sealed_frame(Query{2}, seal);
        frame[6] = static_cast<char>(frame[6] ^ 1);
        return frame;
      },
      [](FrameSeal& seal) {  // Dropped.
        sealed_frame(Query{2}, seal);
        return sealed_frame(Query{3}, seal);
      },
      [](FrameSeal&) { return bytes_of(Goodbye()); },  // Inserted without a seal.
      [](FrameSeal&) {                                 // Inserted with a forged seal.
        FrameSeal other({});
        return sealed_frame(Goodbye(), other) + bytes_of(Goodbye());
      },
      [](FrameSeal& seal) {  // Stripped of its seal.
        std::string frame = sealed_frame(Query{2}, seal);
        frame.resize(frame.size() - FrameSeal::kBytes);
        frame[0] = static_cast<char>(frame[0] - static_cast<int>(FrameSeal::kBytes));
        return frame;
      }};
  for (const Change& change : changes) {
    FrameSeal seal = join_sealed();
    std::string bytes = sealed_frame(Query{1}, seal);
    bytes += change(seal);
    bytes += sealed_frame(Query{4}, seal);
    agent_->write(bytes);
    turn_until_over();
    EXPECT_EQ(messages_, std::vector<AgentMessage>{Query{1}});
    EXPECT_EQ(ends_, (std::vector<SessionEnd>{{std::string(membership::kBrokenSeal), false}}));
    EXPECT_TRUE(session_->is_seal_broken());
    is_cut_off_ = false;
  }
  FrameSeal seal = join_sealed();
  const std::string frame = sealed_frame(Query{1}, seal);
  agent_->write(frame + frame);  // Repeated.
  turn_until_over();
  EXPECT_EQ(messages_, std::vector<AgentMessage>{Query{1}});
}

// Each message of the host, even a late refusal, has its own seal and arrives in order.
TEST_F(AgentSessionTest, SealsTheHostsMessages) {
  join_sealed();
  session_->send(Alive{1, 2, {}});
  session_->refuse(RefusalKind::full, "no room");
  turn([this] { return is_cut_off_; }, "the connection is closed");
  EXPECT_EQ(heard_.size(), 3u);
  EXPECT_EQ(heard_.back(), HostMessage(Refused{RefusalKind::full, "no room"}));
  EXPECT_TRUE(reader_.is_sealed());
}

TEST_F(AgentSessionTest, ChallengesWithAFreshNonce) {
  start(kToken);
  say(hello_of("job"));
  const membership::Nonce first = challenge().nonce;
  heard_.clear();
  start(kToken);
  say(hello_of("job"));
  EXPECT_NE(challenge().nonce, first);
}

TEST_F(AgentSessionTest, RefusesAnotherVersionAndNamesBoth) {
  start();
  Hello hello = hello_of("job");
  hello.version = membership::kProtocolVersion + 1;
  say(hello);
  turn_until_over();
  const std::string text = fmt::format(
      "this node's muster speaks version {} of the rendezvous protocol, the host's version {}: "
      "install the same muster on all nodes",
      hello.version, membership::kProtocolVersion);
  EXPECT_EQ(heard_, std::vector<HostMessage>{Refused(RefusalKind::version, text)});
  EXPECT_EQ(ends_, (std::vector<SessionEnd>{{text, true}}));
}

TEST_F(AgentSessionTest, HangsUpOnAnotherJobIfTheHostServesOneJob) {
  only_own_job_ = true;
  start();
  say(hello_of("other"));
  turn_until_over();
  EXPECT_EQ(heard_, std::vector<HostMessage>{});
  EXPECT_EQ(ends_, (std::vector<SessionEnd>{{"it belongs to another job", false}}));
}

TEST_F(AgentSessionTest, HangsUpOnAnAgentThatWantsAHostOfAnotherJob) {
  start();
  Hello hello = hello_of("other");
  hello.only_this_job = true;
  say(hello);
  turn_until_over();
  EXPECT_EQ(heard_, std::vector<HostMessage>{});
  EXPECT_EQ(ends_, (std::vector<SessionEnd>{{"it belongs to another job", false}}));
}

TEST_F(AgentSessionTest, AcceptsAnAgentThatWantsOnlyThisJob) {
  only_own_job_ = true;
  start();
  Hello hello = hello_of("job");
  hello.only_this_job = true;
  say(hello);
  EXPECT_FALSE(challenge().token);
}

TEST_F(AgentSessionTest, ReadsBytesOfTheArrivalInsideStart) {
  start("", bytes_of(hello_of("job")) + bytes_of(join_of_agent(3)) + bytes_of(Query{8}));
  EXPECT_EQ(joins_, std::vector<Join>{join_of_agent(3)});
  EXPECT_EQ(messages_, std::vector<AgentMessage>{Query{8}});
}

TEST_F(AgentSessionTest, EndsAtAMessageOutOfTurn) {
  const std::string hello = bytes_of(hello_of("job"));
  const std::string join = bytes_of(join_of_agent(1));
  const std::vector<std::string> cases = {join,
                                          bytes_of(Report()),
                                          bytes_of(Goodbye()),
                                          hello + hello,
                                          hello + bytes_of(Query{1}),
                                          hello + join + hello,
                                          hello + join + join};
  for (const std::string& bytes : cases) {
    ends_.clear(), joins_.clear();
    start("", bytes + bytes_of(Query{2}));
    EXPECT_EQ(ends_, (std::vector<SessionEnd>{{"it sent an unexpected message", false}}));
    EXPECT_TRUE(messages_.empty());
    EXPECT_FALSE(session_->is_joined());
  }
}

TEST_F(AgentSessionTest, DeliversMessagesInOrderFromAnyPieces) {
  join();
  const std::vector<AgentMessage> sent = {Report(), Query{1}, Query{2}, Goodbye()};
  std::string bytes;
  for (const AgentMessage& message : sent)
    bytes += bytes_of(message);
  for (const char byte : bytes) {
    agent_->write(std::string(1, byte));
    loop_.restart();
    loop_.poll();
  }
  turn([&] { return messages_.size() >= sent.size(); }, "the messages arrive");
  EXPECT_EQ(messages_, sent);
}

// An unauthenticated peer may cost a few kilobytes; a joined agent may send its workers' evidence.
TEST_F(AgentSessionTest, AcceptsLargeFramesOnlyAfterTheJoin) {
  Report large;
  large.evidence = membership::Evidence{{}, {}, std::string(100'000, 'e')};
  start("", bytes_of(hello_of("job")) + bytes_of(large));
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_FALSE(ends_[0].refused);
  EXPECT_NE(ends_[0].why, "it sent an unexpected message");  // Its length alone is refused.
  join();
  say(large);
  turn([this] { return !messages_.empty(); }, "the report arrives");
  EXPECT_EQ(messages_, std::vector<AgentMessage>{large});
}

TEST_F(AgentSessionTest, WelcomesWithTheHostsInstanceAndTheSeed) {
  join_sealed();
  Welcome welcome;
  welcome.lease = std::chrono::seconds(30);
  session_->send(welcome);
  session_->send(Alive{1, 2, {}});
  turn([this] { return heard_.size() >= 3; }, "the messages arrive");
  welcome.host_instance = 42;
  ASSERT_TRUE(std::holds_alternative<Welcome>(heard_[1]));
  welcome.worker_seed = std::get<Welcome>(heard_[1]).worker_seed;
  EXPECT_NE(welcome.worker_seed, Mac{});
  EXPECT_EQ(heard_[1], HostMessage(welcome));
  EXPECT_EQ(heard_[2], HostMessage(Alive{1, 2, {}}));
}

TEST_F(AgentSessionTest, SendsTheReasonOfALateRefusal) {
  join();
  session_->refuse(RefusalKind::full, "no room: start fewer nodes");
  EXPECT_EQ(ends_, (std::vector<SessionEnd>{{"no room: start fewer nodes", true}}));
  turn([this] { return is_cut_off_; }, "the connection is closed");
  EXPECT_EQ(heard_.back(), HostMessage(Refused{RefusalKind::full, "no room: start fewer nodes"}));
}

TEST_F(AgentSessionTest, ReportsAHangupOnce) {
  join();
  agent_.reset();
  turn([this] { return !ends_.empty(); }, "the end arrives");
  loop_.restart();
  loop_.poll();
  EXPECT_EQ(ends_, (std::vector<SessionEnd>{{"the other side closed the connection", false}}));
  EXPECT_FALSE(session_->is_joined());
}

TEST_F(AgentSessionTest, SendsOnlyEarlierMessagesAfterFinish) {
  join();
  session_->send(Alive{5, 5, {}});
  say(Query{9});
  session_->finish();
  session_->send(Alive{6, 6, {}});
  turn([this] { return is_cut_off_; }, "the connection is closed");
  EXPECT_EQ(heard_.back(), HostMessage(Alive{5, 5, {}}));
  EXPECT_TRUE(messages_.empty());
  EXPECT_TRUE(ends_.empty());
}

}  // namespace
}  // namespace muster
