// Real agents that know their host, at ports some of which other processes hold.
#include <array>
#include <set>
#include <thread>

#include "rendezvous/backends/job_ports.h"
#include "rendezvous/net/interfaces.h"
#include "tests/unit/rendezvous/backends/rendezvous_harness.h"
#include "tests/unit/rendezvous/net/socket_harness.h"

namespace muster {
namespace {

using Ports = std::vector<uint16_t>;

bool is_free(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  const bool free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return free;
}

// Returns three free ports outside the ephemeral range, from which other tests get theirs.
Ports free_ports() {
  static int made = 0;
  Ports ports;
  while (ports.size() < 3) {
    for (const uint16_t port :
         ports_of_job(std::to_string(getpid()) + "." + std::to_string(++made))) {
      if (ports.size() < 3 && is_free(port)) ports.push_back(port);
    }
  }
  return ports;
}

RendezvousOptions node_of_job(const Ports& ports, int rank, const std::string& job = "job") {
  RendezvousOptions options = endpoint_options(ports.front(), 2, 2);
  options.way = RendezvousOptions::Way::known_host;
  options.job_id = job;
  options.ports = ports;
  options.is_host = rank == 0;
  options.join.node_rank = rank;
  return options;
}

// Accepts connections at a port, sends `greeting`, and closes its side if that is not empty.
class StrangerAt {
 public:
  StrangerAt(uint16_t port, std::string greeting)
      : greeting_(std::move(greeting)),
        listening_(PlainSocket::bound_to({IpAddress::any_v4(), port})) {
    thread_ = std::thread([this] {
      for (int peer = 0; (peer = accept(listening_.fd(), nullptr, nullptr)) >= 0;) {
        static_cast<void>(send(peer, greeting_.data(), greeting_.size(), MSG_NOSIGNAL));
        if (!greeting_.empty()) shutdown(peer, SHUT_WR);
        peers_.push_back(peer);
      }
    });
  }
  ~StrangerAt() {
    shutdown(listening_.fd(), SHUT_RDWR);
    thread_.join();
    for (const int peer : peers_)
      close(peer);
  }
  StrangerAt(const StrangerAt&) = delete;
  StrangerAt& operator=(const StrangerAt&) = delete;

 private:
  const std::string greeting_;
  const PlainSocket listening_;
  std::vector<int> peers_;
  std::thread thread_;
};

// Starts both nodes of the job, the host last, and waits for their round.
Agents meet(boost::asio::io_context& loop, const Ports& ports, const std::string& job = "job") {
  Agents agents;
  for (const int rank : {1, 0}) {
    agents.push_back(std::make_unique<TestAgent>(loop, node_of_job(ports, rank, job)));
    agents.back()->meeting().tell(member::ReadyForRound{});
  }
  for (const auto& agent : agents)
    EXPECT_TRUE(agent->wait_rounds(1)) << (agent->errors.empty() ? "" : agent->errors[0].message);
  return agents;
}

int port_of(const Agents& agents) {
  return agents.front()->rounds.empty() ? 0 : agents.front()->rounds.front().master_port;
}

TEST(KnownHost, NodesMeetAtTheFirstPort) {
  boost::asio::io_context loop;
  const Ports ports = free_ports();
  const Agents agents = meet(loop, ports);
  EXPECT_EQ(port_of(agents), ports[0]);
  EXPECT_EQ(agents[1]->rounds[0].node_rank, 0);
}

TEST(KnownHost, IsFoundBehindAPortOfAnotherServer) {
  for (const std::string greeting :
       {"SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", "\x15\x03\x01", "hi"}) {
    boost::asio::io_context loop;
    const Ports ports = free_ports();
    const StrangerAt first(ports[0], greeting);
    const Agents agents = meet(loop, ports);
    EXPECT_EQ(port_of(agents), ports[1]) << greeting;
  }
}

TEST(KnownHost, IsFoundBehindAPortOfASilentServer) {
  boost::asio::io_context loop;
  const Ports ports = free_ports();
  const StrangerAt first(ports[0], "");
  EXPECT_EQ(port_of(meet(loop, ports)), ports[1]);
}

// Jobs whose ids lead to the same ports, and a job with one of these ports as its endpoint.
TEST(KnownHost, JobsAtTheSamePortsDoNotMeet) {
  boost::asio::io_context loop;
  const Ports ports = free_ports();
  RendezvousOptions elsewhere = endpoint_options(ports[0], 2, 2);
  elsewhere.job_id = "first";
  TestAgent other(loop, elsewhere);
  other.meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(run_until(loop, [&] {
    return other.meeting().status().find("this node is the host") != std::string::npos;
  }));
  const Agents second = meet(loop, ports, "second");
  EXPECT_EQ(port_of(second), ports[1]);
  const Agents third = meet(loop, ports, "third");
  EXPECT_EQ(port_of(third), ports[2]);
  EXPECT_TRUE(other.rounds.empty());
}

TEST(KnownHost, SaysWhichPortsAreTaken) {
  boost::asio::io_context loop;
  const Ports ports = free_ports();
  const StrangerAt first(ports[0], ""), second(ports[1], ""), third(ports[2], "");
  TestAgent host(loop, node_of_job(ports, 0));
  host.meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(host.wait_error());
  EXPECT_EQ(host.errors[0].code, ExitCode::environment);
  EXPECT_NE(host.errors[0].message.find("give all nodes --rdzv-endpoint HOST:PORT"),
            std::string::npos)
      << host.errors[0].message;
}

void expect_nodes_meet_at(const std::string& host) {
  boost::asio::io_context loop;
  const Ports ports = free_ports();
  Agents agents;
  for (const int rank : {1, 0}) {
    RendezvousOptions options = node_of_job(ports, rank);
    options.host = host;
    agents.push_back(std::make_unique<TestAgent>(loop, options));
    agents.back()->meeting().tell(member::ReadyForRound{});
  }
  EXPECT_TRUE(agents[0]->wait_rounds(1)) << host;
}

TEST(KnownHost, IsReachedAtAnyOfItsAddresses) {
  expect_nodes_meet_at("127.0.0.1,::1");
}

TEST(KnownHost, AcceptsIPv6) {
  if (!is_own_address(IpAddress::loopback_v6())) GTEST_SKIP() << "this machine has no IPv6";
  expect_nodes_meet_at("::1");
}

// ---- the ports of a job

// Nodes of one job may run different builds.
TEST(JobPorts, AreTheSameInEveryBuild) {
  EXPECT_EQ(ports_of_job("slurm-4711.0.0"),
            (std::array<uint16_t, kJobPorts>{24307, 16530, 24646, 21343}));
}

TEST(JobPorts, AreDistinctAndBelowTheEphemeralRange) {
  std::set<uint16_t> firsts;
  for (int job = 0; job < 1000; ++job) {
    const auto ports = ports_of_job("slurm-" + std::to_string(job) + ".0.0");
    EXPECT_EQ(std::set<uint16_t>(ports.begin(), ports.end()).size(), kJobPorts);
    for (const uint16_t port : ports) {
      EXPECT_GE(port, kJobPortsFirst);
      EXPECT_LT(port, kJobPortsEnd);
    }
    firsts.insert(ports[0]);
  }
  EXPECT_GT(firsts.size(), 900U) << "neighbouring job ids should differ";
}

}  // namespace
}  // namespace muster
