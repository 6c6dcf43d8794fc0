// A real MemberClient that connects to one port of this machine, and a real host, both on the
// test's loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "rendezvous/membership/coordinator.h"
#include "rendezvous/membership/member_client.h"
#include "rendezvous/membership/random_ids.h"
#include "rendezvous/net/connect.h"
#include "rendezvous/net/listener.h"
#include "tests/unit/rendezvous/backends/rendezvous_harness.h"

namespace muster {

// Dials 127.0.0.1 at one port.
class PortDialler : public Dialler {
 public:
  PortDialler(boost::asio::io_context& loop, int port) : loop_(loop), port_(port) {}
  void dial(bool, std::function<void(DialOutcome)> done) override {
    ++dials;
    const auto deadline = std::chrono::steady_clock::now() + kTestPatience;
    connecting_ = connect_any(
        loop_, "127.0.0.1", static_cast<uint16_t>(port_), deadline, {},
        [this, done](NetResult<TcpSocket> socket) {
          if (socket) return done(Dialled{std::move(*socket), instance, false});
          done(tl::unexpected(member::ConnectionFailed{socket.error().error(), true, false}));
        });
  }
  void cancel() override { connecting_ = Connecting(); }
  void answered_by_another() override { ++others_answered; }
  void hung_up() override {}

  std::optional<uint64_t> instance;
  int dials = 0;
  int others_answered = 0;

 private:
  boost::asio::io_context& loop_;
  int port_;
  Connecting connecting_;
};

inline MemberClient::Options client_options(const std::string& token = "") {
  MemberClient::Options options;
  options.job_id = "job";
  options.token = token;
  options.member.endpoint = "node0:29400";
  options.member.backoff_first = std::chrono::milliseconds(1);
  options.member.backoff_cap = std::chrono::milliseconds(10);
  membership::Join& join = options.member.join;
  join.agent = random_agent_id();
  join.host_name = "node0";
  join.last_call = std::chrono::seconds(30);
  join.join_timeout = std::chrono::seconds(100);
  join.lease = options.member.lease = std::chrono::seconds(30);
  return options;
}

class Client {
 public:
  Client(boost::asio::io_context& loop, int port, const MemberClient::Options& options)
      : dialler(loop, port), loop_(loop) {
    MemberClient::Handlers on;
    on.round = [this](const membership::Round& round) {
      rounds.push_back(round);
      if (on_round) on_round();
    };
    on.stop = [this](const member::StopWorkers& stop) { stops.push_back(stop); };
    on.leave_announced = [] {};
    on.ended = [this](const membership::End& end) { ends.push_back(end); };
    on.failed = [this](const Error& error) { errors.push_back(error); };
    on.say = [this](const std::string& text) { said.push_back(text); };
    on.datagram = [this](const membership::Delivered& one) { datagrams.push_back(one); };
    client = std::make_unique<MemberClient>(loop, dialler, options, std::move(on));
    client->post(member::Begin{});
    client->post(member::ReadyForRound{});
  }
  bool wait_error(const std::string& part) {
    const bool came = run_until(loop_, [&] { return !errors.empty(); });
    if (!came) return false;
    EXPECT_NE(errors[0].message.find(part), std::string::npos) << errors[0].message;
    return true;
  }

  PortDialler dialler;
  std::unique_ptr<MemberClient> client;
  std::vector<membership::Round> rounds;
  std::vector<member::StopWorkers> stops;
  std::vector<membership::End> ends;
  std::vector<Error> errors;
  std::vector<std::string> said;
  std::vector<membership::Delivered> datagrams;
  std::function<void()> on_round;

 private:
  boost::asio::io_context& loop_;
};

inline std::unique_ptr<Coordinator> host_with(boost::asio::io_context& loop,
                                              const std::string& token) {
  auto listener = Listener::open(loop, {SocketAddress{IpAddress::loopback_v4(), 0}});
  Coordinator::Options options;
  options.job_id = "job";
  options.token = token;
  options.membership.host_instance = 42;
  // However busy the machine is, no agent is lost.
  options.membership.reconnect_grace = kTestPatience;
  return std::make_unique<Coordinator>(loop, std::move(*listener), options);
}

}  // namespace muster
