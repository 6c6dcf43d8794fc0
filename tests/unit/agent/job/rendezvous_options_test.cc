#include "agent/job/rendezvous_options.h"

#include <gtest/gtest.h>

#include "rendezvous/base/machine.h"

namespace muster {
namespace {

using std::chrono::seconds;
using Way = RendezvousOptions::Way;

const NodeFacts kNode{4, "node-a", "job-7", "secret"};

LaunchSpec meeting_spec(const std::string& backend, int nodes_min, int nodes_max) {
  LaunchSpec spec;
  spec.rendezvous.backend = backend;
  spec.rendezvous.nnodes_min = nodes_min;
  spec.rendezvous.nnodes_max = nodes_max;
  spec.rendezvous.endpoint_host = "node0";
  spec.rendezvous.endpoint_port = 29400;
  return spec;
}

TEST(MeetingOptionsOf, OneNodeNeedsNoRendezvous) {
  LaunchSpec spec = meeting_spec("c10d", 1, 1);
  spec.rendezvous.single_node_default = true;
  const RendezvousOptions options = rendezvous_options(spec, kNode);
  EXPECT_FALSE(is_coordinated(spec.rendezvous));
  EXPECT_EQ(options.way, Way::solo);
  EXPECT_EQ(options.host, "");
  EXPECT_EQ(options.port, 0);
  EXPECT_FALSE(options.fixed_master_addr);
}

TEST(MeetingOptionsOf, OneStaticNodeKeepsTheGivenAddressAndPort) {
  const RendezvousOptions options = rendezvous_options(meeting_spec("static", 1, 1), kNode);
  EXPECT_EQ(options.way, Way::solo);
  EXPECT_EQ(options.host, "node0");
  EXPECT_EQ(options.port, 29400);
  EXPECT_TRUE(options.fixed_master_addr);
}

TEST(MeetingOptionsOf, OneNodeWithALocalAddressPublishesIt) {
  LaunchSpec spec = meeting_spec("c10d", 1, 1);
  spec.rendezvous.local_addr = "10.0.0.5";
  EXPECT_EQ(rendezvous_options(spec, kNode).host, "10.0.0.5");
}

TEST(MeetingOptionsOf, StaticNodesMeetAtTheNodeOfRankZero) {
  LaunchSpec spec = meeting_spec("static", 2, 2);
  spec.rendezvous.node_rank = 0;
  EXPECT_EQ(rendezvous_options(spec, kNode).is_host, true);
  spec.rendezvous.node_rank = 1;
  const RendezvousOptions options = rendezvous_options(spec, kNode);
  EXPECT_EQ(options.is_host, false);
  EXPECT_EQ(options.way, Way::endpoint);
  EXPECT_TRUE(options.fixed_master_addr);
  EXPECT_EQ(options.join.node_rank, 1);
}

TEST(MeetingOptionsOf, OneNodeOfAJobInEtcdUsesEtcdToo) {
  LaunchSpec spec = meeting_spec("etcd", 1, 1);
  spec.rendezvous.etcd.emplace().members = {{"e1", 2379}};
  const RendezvousOptions options = rendezvous_options(spec, kNode);
  EXPECT_TRUE(is_coordinated(spec.rendezvous));
  EXPECT_EQ(options.way, Way::etcd);
  EXPECT_EQ(options.etcd, spec.rendezvous.etcd);
  EXPECT_EQ(options.job_id, "job-7");
}

TEST(MeetingOptionsOf, ElasticNodesFindOutWhichOneHosts) {
  const LaunchSpec spec = meeting_spec("c10d", 2, 4);
  EXPECT_TRUE(is_coordinated(spec.rendezvous));
  const RendezvousOptions options = rendezvous_options(spec, kNode);
  EXPECT_EQ(options.way, Way::endpoint);
  EXPECT_EQ(options.host, "node0");
  EXPECT_EQ(options.port, 29400);
  EXPECT_EQ(options.is_host, std::nullopt);
  EXPECT_FALSE(options.fixed_master_addr);
}

TEST(MeetingOptionsOf, ASpareMakesAJobOfOneNodeCoordinated) {
  LaunchSpec spec = meeting_spec("c10d", 1, 1);
  spec.rendezvous.spares = 1;
  EXPECT_TRUE(is_coordinated(spec.rendezvous));
  EXPECT_EQ(rendezvous_options(spec, kNode).way, Way::endpoint);
}

TEST(MeetingOptionsOf, TheFileBackendMeetsAtThePath) {
  LaunchSpec spec = meeting_spec("file", 2, 2);
  spec.rendezvous.file_path = "/shared/meet";
  const RendezvousOptions options = rendezvous_options(spec, kNode);
  EXPECT_EQ(options.way, Way::file);
  EXPECT_EQ(options.host, "/shared/meet");
}

TEST(MeetingOptionsOf, TheJoinRequestHoldsAllThatTheCommandLineSays) {
  LaunchSpec spec = meeting_spec("c10d", 2, 4);
  spec.role = "trainer";
  spec.program = "/jobs/train.py";
  spec.args = {"--lr", "1"};
  spec.max_restarts = 3;
  spec.rendezvous.node_rank = 2;
  spec.rendezvous.spares = 1;
  spec.rendezvous.max_membership_changes = 9;
  spec.rendezvous.times.last_call_s = 5;
  spec.rendezvous.times.join_timeout_s = 60;
  spec.rendezvous.times.lease_s = 1.5;
  membership::Join join;
  join.host_name = "node-a";
  join.machine = machine_identity();
  join.node_rank = 2;
  join.slots = 4;
  join.role = "trainer";
  join.program = "train.py";
  join.nodes_min = 2;
  join.nodes_max = 4;
  join.spares = 1;
  join.max_restarts = 3;
  join.max_membership_changes = 9;
  join.last_call = seconds{5};
  join.join_timeout = seconds{60};
  join.lease = std::chrono::milliseconds{1500};
  const RendezvousOptions options = rendezvous_options(spec, kNode);
  join.arguments = options.join.arguments;
  EXPECT_EQ(options.join, join);
  spec.args = {"--lr 1"};
  EXPECT_NE(rendezvous_options(spec, kNode).join.arguments, join.arguments);
  spec.mode = RunMode::module;
  spec.program = "jobs.train";
  EXPECT_EQ(rendezvous_options(spec, kNode).join.program, "-m jobs.train");
  spec.mode = RunMode::direct;
  spec.program = "/bin/bash";
  EXPECT_EQ(rendezvous_options(spec, kNode).join.program, "bash");
  spec.args = {"-lc", "python train.py"};
  EXPECT_EQ(rendezvous_options(spec, kNode).join.program, "bash -c");
  EXPECT_EQ(options.job_id, "job-7");
  EXPECT_EQ(options.token, "secret");
}

TEST(MeetingOptionsOf, TheReachTimeoutDefaultsToTheJoinTimeout) {
  LaunchSpec spec = meeting_spec("c10d", 2, 2);
  spec.rendezvous.times.join_timeout_s = 60;
  EXPECT_EQ(rendezvous_options(spec, kNode).reach_timeout, seconds{60});
  spec.rendezvous.times.reach_timeout_s = 5;
  EXPECT_EQ(rendezvous_options(spec, kNode).reach_timeout, seconds{5});
  EXPECT_EQ(rendezvous_options(spec, kNode).join.join_timeout, seconds{60});
}

TEST(MeetingOptionsOf, TheStoresAllowListAndSizeArePassedOn) {
  LaunchSpec spec = meeting_spec("c10d", 2, 2);
  spec.rendezvous.store_allow = {Network(IpAddress::loopback_v4(), 8)};
  EXPECT_EQ(rendezvous_options(spec, kNode).clients.allow, spec.rendezvous.store_allow);
  EXPECT_FALSE(rendezvous_options(spec, kNode).clients.allow_any);
  spec.rendezvous.store_bytes_max = 4711;
  EXPECT_EQ(rendezvous_options(spec, kNode).store_bytes_max, 4711U);
  spec.rendezvous.store_allow_any = true;
  EXPECT_TRUE(rendezvous_options(spec, kNode).clients.allow_any);
}

}  // namespace
}  // namespace muster
