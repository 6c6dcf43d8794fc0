// A real agent and a real host of a job with a token, and an attacker on the path between them.
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

#include "rendezvous/membership/agent_protocol.h"
#include "rendezvous/membership/frame_seal.h"
#include "rendezvous/membership/member_client.h"
#include "tests/unit/rendezvous/backends/rendezvous_harness.h"
#include "tests/unit/rendezvous/membership/member_client_harness.h"
#include "tests/unit/rendezvous/membership/raw_agent.h"

namespace muster {
namespace {

using boost::asio::ip::tcp;
using membership::Challenge;
using membership::FrameSeal;
using membership::HostMessage;
using membership::RefusalKind;
using membership::Refused;
using membership::Welcome;

constexpr std::string_view kRelaysWords = "so says the relay";

enum class Side { agent, host };

// A frame in transit; the connection may be cut after its bytes.
struct Passing {
  size_t connection = 0;  // Counted from 0.
  Side from = Side::agent;
  size_t number = 0;  // Within that side and connection: the Hello with its magic, the Challenge.
  std::string bytes;
  bool cut = false;
};

// Forwards frames between agents and the host's port, and lets the test change each.
class Relay {
 public:
  Relay(boost::asio::io_context& loop, int host_port, std::function<void(Passing&)> change)
      : loop_(loop),
        acceptor_(loop, {boost::asio::ip::address_v4::loopback(), 0}),
        host_{boost::asio::ip::address_v4::loopback(), static_cast<uint16_t>(host_port)},
        change_(std::move(change)) {
    accept();
  }
  ~Relay() { acceptor_.close(); }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  int port() const { return acceptor_.local_endpoint().port(); }
  size_t connections() const { return count_; }

 private:
  struct Way {
    Way(boost::asio::io_context& loop, tcp::socket from) : agent(std::move(from)), host(loop) {}
    tcp::socket& end_of(Side side) { return side == Side::agent ? agent : host; }
    void cut() {
      boost::system::error_code ignored;
      agent.close(ignored);
      host.close(ignored);
    }
    size_t number = 0;
    tcp::socket agent;
    tcp::socket host;
    std::array<char, 65536> scratch[2];
    std::string held[2];
    size_t frames[2] = {0, 0};
  };

  void accept() {
    acceptor_.async_accept([this](boost::system::error_code error, tcp::socket socket) {
      if (error) return;
      const auto way = std::make_shared<Way>(loop_, std::move(socket));
      way->number = count_++;
      boost::system::error_code refused;
      way->host.connect(host_, refused);
      if (!refused) {
        read(way, Side::agent);
        read(way, Side::host);
      }
      accept();
    });
  }

  void read(const std::shared_ptr<Way>& way, Side side) {
    const auto index = static_cast<size_t>(side);
    way->end_of(side).async_read_some(
        boost::asio::buffer(way->scratch[index]),
        [this, way, side, index](boost::system::error_code error, size_t size) {
          if (error) return way->cut();
          way->held[index].append(way->scratch[index].data(), size);
          if (pass_on(*way, side)) read(way, side);
        });
  }

  // Returns false once the connection is cut.
  bool pass_on(Way& way, Side side) {
    const auto index = static_cast<size_t>(side);
    std::string& held = way.held[index];
    while (true) {
      const size_t head = side == Side::agent && way.frames[index] == 0 ? 4 : 0;  // The magic.
      if (held.size() < head + 4) return true;
      uint32_t length = 0;
      for (size_t i = 4; i > 0; --i)
        length = length << 8 | static_cast<unsigned char>(held[head + i - 1]);
      const size_t size = head + 4 + length;
      if (held.size() < size) return true;
      Passing frame{way.number, side, way.frames[index]++, held.substr(0, size), false};
      held.erase(0, size);
      change_(frame);
      boost::system::error_code error;
      tcp::socket& to = way.end_of(side == Side::agent ? Side::host : Side::agent);
      boost::asio::write(to, boost::asio::buffer(frame.bytes), error);
      if (error || frame.cut) {
        way.cut();
        return false;
      }
    }
  }

  boost::asio::io_context& loop_;
  tcp::acceptor acceptor_;
  tcp::endpoint host_;
  std::function<void(Passing&)> change_;
  size_t count_ = 0;
};

membership::End relays_end() {
  membership::End end;
  end.text = kRelaysWords;
  return end;
}

// A forged frame towards that side.
std::string lie_to(Side side) {
  if (side == Side::agent) return bytes_of(HostMessage(membership::Order{1'000'000, relays_end()}));
  return bytes_of(membership::AgentMessage(membership::Goodbye{}));
}
Side other(Side side) {
  return side == Side::agent ? Side::host : Side::agent;
}

struct Meddling {
  const char* name;
  std::function<void(Passing&)> change;
};

const std::vector<Meddling>& meddlings() {
  static const std::vector<Meddling> all = {
      {"a changed type", [](Passing& p) { p.bytes[4] = static_cast<char>(p.bytes[4] ^ 1); }},
      {"a changed field", [](Passing& p) { p.bytes[5] = static_cast<char>(p.bytes[5] ^ 1); }},
      {"a changed seal",
       [](Passing& p) { p.bytes.back() = static_cast<char>(p.bytes.back() ^ 1); }},
      {"a shorter length", [](Passing& p) { p.bytes[0] = static_cast<char>(p.bytes[0] - 1); }},
      {"repeated", [](Passing& p) { p.bytes += p.bytes; }},
      {"cut within", [](Passing& p) { p.bytes.resize(p.bytes.size() / 2), p.cut = true; }},
      {"cut behind", [](Passing& p) { p.cut = true; }},
      {"a lie before", [](Passing& p) { p.bytes.insert(0, lie_to(other(p.from))); }},
      {"a lie instead, with a seal's length",
       [](Passing& p) {
         p.bytes = lie_to(other(p.from));
         FrameSeal({}).close(p.bytes);
       }},
      {"a refusal before",
       [](Passing& p) {
         if (p.from == Side::host)
           p.bytes.insert(
               0, bytes_of(HostMessage(Refused{RefusalKind::closed, std::string(kRelaysWords)})));
       }},
  };
  return all;
}

// Runs a job of a single round through the relay; it must end with success.
void expect_good_end(const std::function<void(Passing&)>& change, size_t connections_at_least) {
  boost::asio::io_context loop;
  const auto host = host_with(loop, "secret");
  const Relay relay(loop, host->port(), change);
  MemberClient::Options options = client_options("secret");
  options.member.join.lease = options.member.lease = std::chrono::seconds(3);
  Client client(loop, relay.port(), options);
  client.on_round = [&] { client.client->post(member::WorkersDone{client.rounds.back().epoch}); };
  size_t stops = 0;
  ASSERT_TRUE(run_until(loop, [&] {
    // A round may be stopped; the next one counts as well.
    for (; stops < client.stops.size(); ++stops)
      client.client->post(member::ReadyForRound{});
    return !client.ends.empty() || !client.errors.empty();
  }));
  ASSERT_TRUE(client.errors.empty()) << client.errors[0].message;
  EXPECT_EQ(client.ends[0].exit_code, 0);
  EXPECT_EQ(client.ends[0].text.find(kRelaysWords), std::string::npos);
  for (const membership::Round& round : client.rounds)
    EXPECT_EQ(round.master_port, host->port());
  EXPECT_GE(relay.connections(), connections_at_least);
  EXPECT_LE(client.said.size(), 1u);
  EXPECT_EQ(client.dialler.others_answered, 0);  // The host has not moved.
}

TEST(MemberRelay, AnHonestRelayIsNotNoticed) {
  expect_good_end([](Passing&) {}, 1);
}

TEST(MemberRelay, TamperingWithAFrameCostsOnlyAConnection) {
  for (const Meddling& meddling : meddlings()) {
    for (const Side side : {Side::agent, Side::host}) {
      // Frames just after the handshake; a job's last frames may come too late to matter.
      for (const size_t number : {size_t{2}, size_t{3}}) {
        SCOPED_TRACE(std::string(meddling.name) +
                     (side == Side::agent ? ", agent's " : ", host's ") + std::to_string(number));
        const bool harmless = side == Side::agent && meddling.name == meddlings().back().name;
        expect_good_end(
            [&](Passing& p) {
              if (p.connection == 0 && p.from == side && p.number == number) meddling.change(p);
            },
            harmless ? 1 : 2);
      }
    }
  }
}

TEST(MemberRelay, ADroppedFrameIsNoticed) {
  for (const Side side : {Side::agent, Side::host}) {
    expect_good_end(
        [&](Passing& p) {
          if (p.connection == 0 && p.from == side && p.number == 2) p.bytes.clear();
        },
        2);
  }
}

// Once the job runs, an impostor's answers in place of the host's end nothing.
TEST(MemberRelay, ALaterHandshakeIsRetriedAfterAnyAnswer) {
  const Refused refused{RefusalKind::closed, std::string(kRelaysWords)};
  struct Answer {
    const char* name;
    size_t number;  // The host's frame that this answer replaces.
    std::string bytes;
  };
  const Answer answers[] = {
      {"a refusal at once", 0, bytes_of(HostMessage(refused))},
      {"another version", 0, bytes_of(HostMessage(Refused{RefusalKind::version, "version 9"}))},
      {"no token wanted", 0, bytes_of(HostMessage(Challenge{}))},
      {"an SSH server", 0, "SSH-2.0-OpenSSH_9.2\r\n"},
      {"a hangup", 0, ""},
      {"a refusal", 1, bytes_of(HostMessage(refused))},
      {"a wrong token", 1, bytes_of(HostMessage(Refused{RefusalKind::token, "wrong"}))},
      {"a Welcome without a seal", 1, bytes_of(HostMessage(Welcome{}))},
      {"the end", 1, lie_to(Side::agent)},
  };
  for (const Answer& answer : answers) {
    SCOPED_TRACE(answer.name);
    expect_good_end(
        [&](Passing& p) {
          if (p.connection == 0 && p.from == Side::host && p.number == 2) p.cut = true;
          if (p.connection == 0 || p.connection > 3 || p.from != Side::host) return;
          if (p.number == answer.number) p.bytes = answer.bytes, p.cut = true;
        },
        5);
  }
}

TEST(MemberRelay, ATamperedFirstHandshakeFailsAndNamesTheToken) {
  for (const Side side : {Side::agent, Side::host}) {
    boost::asio::io_context loop;
    const auto host = host_with(loop, "secret");
    const Relay relay(loop, host->port(), [&](Passing& p) {
      if (p.from == side && p.number == 1) p.bytes[6] = static_cast<char>(p.bytes[6] ^ 1);
    });
    Client client(loop, relay.port(), client_options("secret"));
    EXPECT_TRUE(client.wait_error("token"));
    EXPECT_TRUE(client.rounds.empty());
  }
}

}  // namespace
}  // namespace muster
