#include "launcher/rendezvous_options.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/launcher/command_line_samples.h"

namespace muster {
namespace {

RendezvousSpec rendezvous_of(const Words& flags, const Environment& environment = {}) {
  return spec_of(flags, environment).rendezvous;
}

RendezvousSpec meeting_at(std::string backend, std::string host, int port, std::string id) {
  RendezvousSpec spec;
  spec.backend = std::move(backend);
  spec.endpoint_host = std::move(host);
  spec.endpoint_port = port;
  spec.id = std::move(id);
  if (spec.backend != "static") return spec;
  spec.node_rank = 0;
  spec.times.join_timeout_s = 900;
  return spec;
}

RendezvousSpec of_nodes(RendezvousSpec spec, int min, int max) {
  spec.nnodes_min = min;
  spec.nnodes_max = max;
  if (min == max && max > 1) spec.times.lease_s = 15;
  return spec;
}

RendezvousSpec meeting_in(std::string path, int min, int max) {
  RendezvousSpec spec = of_nodes({}, min, max);
  spec.backend = "file";
  spec.file_path = std::move(path);
  return spec;
}

Words with(Words flags, const Words& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// Two nodes that meet at a host and port.
const Words& c10d_pair() {
  static const Words flags{"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=n0:1"};
  return flags;
}
RendezvousSpec c10d_pair_spec() {
  return of_nodes(meeting_at("c10d", "n0", 1, "none"), 2, 2);
}

const Words& static_pair() {
  static const Words flags{"--nnodes=2", "--master-addr=n0", "--master-port=1"};
  return flags;
}
RendezvousSpec static_pair_spec() {
  return of_nodes(meeting_at("static", "n0", 1, "none"), 2, 2);
}

RendezvousSpec silent_default(std::string id = "") {
  RendezvousSpec spec = meeting_at("c10d", "localhost", 0, std::move(id));
  spec.single_node_default = true;
  return spec;
}

RendezvousSpec standalone(std::string id = "") {
  RendezvousSpec spec = meeting_at("c10d", "localhost", 0, std::move(id));
  spec.standalone = true;
  return spec;
}

TEST(RendezvousMode, UsesAStoreOfItsOwnByDefault) {
  EXPECT_EQ(rendezvous_of({}), silent_default());
  EXPECT_EQ(rendezvous_of({"--nnodes", "1"}), silent_default());
  EXPECT_EQ(rendezvous_of({"--nnodes=1:1", "--rdzv-backend", "static"}), silent_default());
  EXPECT_EQ(rendezvous_of({"--rdzv-endpoint", ""}), silent_default());
  RendezvousSpec ranked = silent_default();
  ranked.node_rank = 0;
  EXPECT_EQ(rendezvous_of({"--node-rank", "0"}), ranked);
}

TEST(RendezvousMode, SaysThatAnAddressAloneIsNoMeetingPlace) {
  EXPECT_EQ(spec_despite_warnings({"--master-addr", "10.0.0.1"}).rendezvous, silent_default());
  EXPECT_EQ(warnings_of({"--master-addr", "10.0.0.1"}),
            Words({"--master-addr 10.0.0.1 has no effect without --master-port: the workers of one "
                   "node meet at 127.0.0.1, or at --local-addr"}));
  EXPECT_EQ(warnings_of({}, {{"PET_MASTER_ADDR", "n0"}}).size(), 1u);
}

TEST(RendezvousMode, KeepsAnIdThatWasGiven) {
  EXPECT_EQ(rendezvous_of({"--rdzv-id", "job7"}), silent_default("job7"));
  EXPECT_EQ(rendezvous_of({"--rdzv-id", "none"}), silent_default("none"));
  EXPECT_EQ(rendezvous_of({}, {{"PET_RDZV_ID", "job7"}}), silent_default("job7"));
  EXPECT_EQ(rendezvous_of({"--standalone", "--rdzv-id", "job7"}), standalone("job7"));
}

TEST(RendezvousMode, IsStandaloneIfTheFlagIsGiven) {
  EXPECT_EQ(rendezvous_of({"--standalone"}), standalone());
  EXPECT_EQ(rendezvous_of({"--standalone", "--rdzv-backend=c10d", "--nnodes=1"}), standalone());
  EXPECT_EQ(rendezvous_of({}, {{"PET_STANDALONE", "1"}}), standalone());
}

TEST(RendezvousMode, SaysWhatStandaloneIgnores) {
  const Words flags{"--standalone", "--rdzv-backend", "etcd", "--rdzv-endpoint",
                    "a b",          "--master-port",  "1234", "--master-addr=n0"};
  EXPECT_EQ(spec_despite_warnings(flags).rendezvous, standalone());
  EXPECT_EQ(warnings_of(flags),
            Words({"--rdzv-endpoint 'a b' is ignored: --standalone meets on a port of its own",
                   "--rdzv-backend etcd is ignored: --standalone meets on a port of its own",
                   "--master-addr n0 is ignored: --standalone meets on a port of its own",
                   "--master-port 1234 is ignored: --standalone meets on a port of its own"}));
  EXPECT_EQ(rendezvous_of({"--standalone"}, {{"PET_RDZV_ENDPOINT", "host:1"}}), standalone());
}

TEST(RendezvousMode, IsStaticIfAPortOrAnEndpointIsGiven) {
  EXPECT_EQ(rendezvous_of({"--master-port", "1234"}),
            meeting_at("static", "127.0.0.1", 1234, "none"));
  EXPECT_EQ(rendezvous_of({}, {{"PET_MASTER_PORT", "1234"}}),
            meeting_at("static", "127.0.0.1", 1234, "none"));
  EXPECT_EQ(rendezvous_of({"--master-port", "1234", "--master-addr", "node0", "--rdzv-id", "a"}),
            meeting_at("static", "node0", 1234, "a"));
  EXPECT_EQ(rendezvous_of({"--rdzv-endpoint", "node0:77"}),
            meeting_at("static", "node0", 77, "none"));
  EXPECT_EQ(rendezvous_of({"--rdzv-endpoint", "node0:77"}, {{"PET_MASTER_PORT", "1234"}}),
            meeting_at("static", "node0", 77, "none"));
  EXPECT_EQ(rendezvous_of({"--master-port", "0"}), meeting_at("static", "127.0.0.1", 0, "none"));
}

TEST(RendezvousMode, SaysThatAnEndpointLeavesTheMasterWithoutEffect) {
  const Words flags{"--rdzv-endpoint", "node0:77", "--master-port", "1234"};
  EXPECT_EQ(spec_despite_warnings(flags).rendezvous, meeting_at("static", "node0", 77, "none"));
  EXPECT_EQ(warnings_of(flags), Words({"--master-port 1234 has no effect beside --rdzv-endpoint"}));
  EXPECT_EQ(warnings_of(with(c10d_pair(), {"--master-addr=n1", "--master-port=2"})),
            Words({"--master-addr n1 has no effect with --rdzv-backend c10d",
                   "--master-port 2 has no effect with --rdzv-backend c10d"}));
  EXPECT_EQ(warnings_of(c10d_pair(), {{"PET_MASTER_ADDR", "n1"}, {"PET_MASTER_PORT", "2"}}),
            Words{});
}

TEST(RendezvousMode, TakesIpv6MasterAddresses) {
  EXPECT_EQ(rendezvous_of({"--master-port", "1234", "--master-addr", "::1"}),
            meeting_at("static", "::1", 1234, "none"));
  EXPECT_EQ(rendezvous_of({"--master-port", "1234", "--master-addr", "[fe80::1]"}),
            meeting_at("static", "fe80::1", 1234, "none"));
}

TEST(RendezvousMode, FillsInThePortOfC10d) {
  const Words c10d{"--rdzv-backend", "c10d", "--rdzv-endpoint"};
  const auto with = [&](const std::string& endpoint) {
    Words flags = c10d;
    flags.push_back(endpoint);
    return rendezvous_of(flags);
  };
  EXPECT_EQ(with("localhost"), meeting_at("c10d", "localhost", 29400, "none"));
  EXPECT_EQ(with("localhost:0"), meeting_at("c10d", "localhost", 0, "none"));
  EXPECT_EQ(with("[::1]:5"), meeting_at("c10d", "::1", 5, "none"));
  EXPECT_EQ(with("elsewhere.org"), meeting_at("c10d", "elsewhere.org", 29400, "none"));
}

TEST(RendezvousMode, SaysWhereC10dMeetsByDefault) {
  const Words flags{"--rdzv-backend", "c10d", "--nnodes=2"};
  EXPECT_EQ(spec_despite_warnings(flags).rendezvous,
            of_nodes(meeting_at("c10d", "localhost", 29400, "none"), 2, 2));
  const Words line{
      "no --rdzv-endpoint given: localhost:29400 is used, which other machines cannot reach"};
  EXPECT_EQ(warnings_of(flags), line);
  EXPECT_EQ(warnings_of({"--rdzv-backend=c10d", "--spares=1"}), line);
  // One node alone needs no warning.
  EXPECT_EQ(rendezvous_of({"--rdzv-backend", "c10d"}),
            meeting_at("c10d", "localhost", 29400, "none"));
}

TEST(RendezvousMode, SaysThatMusterMakesUpAnEmptyId) {
  const Words flags{"--master-port", "1", "--rdzv-id="};
  EXPECT_EQ(spec_despite_warnings(flags).rendezvous, meeting_at("static", "127.0.0.1", 1, ""));
  EXPECT_EQ(warnings_of(flags), Words({"--rdzv-id '': the job has no name; muster makes one up"}));
}

TEST(RendezvousMode, RefusesAnEmptyIdOfSeveralNodes) {
  EXPECT_EQ(complaint_about(with(c10d_pair(), {"--rdzv-id="})),
            "--rdzv-id '': the job has no name, and one made up here would differ on every node; "
            "give an ID");
}

TEST(RendezvousMode, TakesSeveralNodes) {
  EXPECT_EQ(rendezvous_of(c10d_pair()), c10d_pair_spec());
  EXPECT_EQ(rendezvous_of({"--nnodes=1:4", "--rdzv-backend=c10d", "--rdzv-endpoint=n0"}),
            of_nodes(meeting_at("c10d", "n0", 29400, "none"), 1, 4));
  EXPECT_EQ(rendezvous_of(static_pair()), static_pair_spec());
  EXPECT_EQ(rendezvous_of({"--nnodes=2", "--rdzv-endpoint=n0:1", "--rdzv-id=a"}),
            of_nodes(meeting_at("static", "n0", 1, "a"), 2, 2));
  EXPECT_EQ(rendezvous_of({"--nnodes=2", "--master-addr=n0"}),
            of_nodes(meeting_at("static", "n0", 29500, "none"), 2, 2));
}

TEST(RendezvousMode, SaysThatOtherMachinesCannotReachLoopback) {
  const Words flags{"--nnodes=2"};
  EXPECT_EQ(spec_despite_warnings(flags).rendezvous,
            of_nodes(meeting_at("static", "127.0.0.1", 29500, "none"), 2, 2));
  EXPECT_EQ(warnings_of(flags),
            Words({"no --master-addr given: 127.0.0.1:29500 is used, which other machines cannot "
                   "reach"}));
}

TEST(RendezvousMode, WaitsForTheMaximumOfStaticNodes) {
  const Words flags{"--nnodes=2:4", "--master-addr=n0"};
  EXPECT_EQ(spec_despite_warnings(flags).rendezvous,
            of_nodes(meeting_at("static", "n0", 29500, "none"), 4, 4));
  EXPECT_EQ(warnings_of(flags),
            Words({"--nnodes 2:4: the static backend waits for all 4 nodes; give --rdzv-backend "
                   "c10d for a number that may change"}));
}

TEST(RendezvousMode, IsOneNodeIfItIsStandalone) {
  EXPECT_EQ(spec_despite_warnings({"--standalone", "--nnodes=1:4"}).rendezvous, standalone());
  EXPECT_EQ(warnings_of({"--standalone", "--nnodes=1:4"}),
            Words({"--nnodes 1:4 counts as 1: --standalone is one node"}));
  EXPECT_EQ(complaint_about({"--standalone", "--nnodes", "2"}),
            "--nnodes 2 contradicts --standalone, which is one node; leave out one of them");
  EXPECT_EQ(complaint_about({"--standalone"}, {{"PET_NNODES", "2:3"}}),
            "PET_NNODES=2:3 contradicts --standalone, which is one node; leave out one of them");
}

TEST(RendezvousMode, MeetsInAFile) {
  EXPECT_EQ(rendezvous_of({"--nnodes=2", "--rdzv-backend=file", "--rdzv-endpoint=/shared/job 7"}),
            meeting_in("/shared/job 7", 2, 2));
  EXPECT_EQ(rendezvous_of({"--nnodes=1:3", "--rdzv-backend=file", "--rdzv-endpoint= /s "}),
            meeting_in("/s", 1, 3));
  EXPECT_EQ(
      complaint_about({"--rdzv-backend=file"}),
      "--rdzv-backend file needs a file that all nodes can access; give --rdzv-endpoint /PATH");
  for (const char* path : {"store", "node0:29400"}) {
    EXPECT_EQ(complaint_about({"--rdzv-backend=file", "--rdzv-endpoint", path}),
              std::string("--rdzv-endpoint ") + path +
                  ": the file backend needs an absolute path, the same on all nodes; give /PATH");
  }
}

TEST(RendezvousMode, TakesAC10dStoreInAFileAsTheFileBackend) {
  const Words flags{"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=/tmp/store",
                    "--rdzv-conf=store_type=File"};
  RendezvousSpec expected = meeting_in("/tmp/store", 2, 2);
  expected.conf = {{"store_type", "File"}};
  EXPECT_EQ(spec_despite_warnings(flags).rendezvous, expected);
  EXPECT_EQ(warnings_of(flags),
            Words({"--rdzv-conf store_type=File: store_type=file means --rdzv-backend file"}));

  RendezvousSpec alone = meeting_at("c10d", "localhost", 0, "none");
  alone.conf = {{"store_type", "file"}};
  EXPECT_EQ(rendezvous_of({"--rdzv-backend=c10d", "--rdzv-conf=store_type=file"}), alone);
  EXPECT_EQ(
      complaint_about({"--rdzv-backend=file", "--rdzv-endpoint=/a", "--rdzv-conf=store_type=tcp"}),
      "--rdzv-conf store_type=tcp: store_type contradicts --rdzv-backend file; leave one of "
      "them out");
}

TEST(RendezvousMode, BothOfTorchrunsNamesMeanEtcd) {
  for (const char* name : {"etcd", "etcd-v2"}) {
    const Words flags{"--nnodes=2:4", "--rdzv-backend", name,          "--rdzv-endpoint",
                      "e1,e2:4001",   "--rdzv-id=exp",  "--rdzv-conf", "etcd_prefix=/x,timeout=77"};
    const RendezvousSpec spec = rendezvous_of(flags);
    EXPECT_EQ(spec.backend, "etcd");
    ASSERT_TRUE(spec.etcd);
    EXPECT_EQ(spec.etcd->members, (std::vector<EtcdMember>{{"e1", 2379}, {"e2", 4001}}));
    EXPECT_EQ(spec.etcd->prefix, "/x/");
    EXPECT_EQ(spec.times.join_timeout_s, 77);
    EXPECT_EQ(warnings_of(flags), Words());
  }
}

TEST(RendezvousMode, FindsEtcdByTheVariableOfEtcdctl) {
  const Words flags{"--nnodes=2", "--rdzv-backend=etcd", "--rdzv-id=exp"};
  const RendezvousSpec spec = rendezvous_of(flags, {{"ETCDCTL_ENDPOINTS", "https://e1:2379"}});
  ASSERT_TRUE(spec.etcd);
  EXPECT_EQ(spec.etcd->members, (std::vector<EtcdMember>{{"e1", 2379}}));
  EXPECT_TRUE(spec.etcd->tls);
  EXPECT_EQ(complaint_about(flags),
            "the etcd backend needs the addresses of etcd; give --rdzv-endpoint "
            "HOST[:PORT],HOST[:PORT] or set ETCDCTL_ENDPOINTS");
}

TEST(RendezvousMode, AJobInEtcdShouldHaveAName) {
  EXPECT_EQ(
      warnings_of({"--nnodes=2", "--rdzv-backend=etcd", "--rdzv-endpoint=e1"}),
      Words({"no --rdzv-id given: all jobs without one are one job in etcd, 'none', and one that "
             "begins within 10 minutes of a success is over at once; give each an ID"}));
}

TEST(RendezvousMode, RefusesAPortThatTheOtherNodesCannotKnow) {
  const std::string why =
      ": port 0 is a port that the other nodes cannot know; give the same free port on all nodes";
  EXPECT_EQ(complaint_about({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=n0:0"}),
            "--rdzv-endpoint n0:0" + why);
  EXPECT_EQ(complaint_about({"--nnodes=2", "--master-addr=n0", "--master-port=0"}),
            "--master-port 0" + why);
  EXPECT_EQ(rendezvous_of({"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"}),
            of_nodes(meeting_at("c10d", "localhost", 0, "none"), 1, 2));
}

TEST(NodeRank, CountsInEveryBackend) {
  RendezvousSpec second = static_pair_spec();
  second.node_rank = 1;
  EXPECT_EQ(rendezvous_of(with(static_pair(), {"--node-rank=1"})), second);
  EXPECT_EQ(rendezvous_of(static_pair(), {{"PET_NODE_RANK", "1"}}), second);
  second = c10d_pair_spec();
  second.node_rank = 1;
  EXPECT_EQ(rendezvous_of(with(c10d_pair(), {"--node-rank=1"})), second);
  second = meeting_in("/s", 2, 2);
  second.node_rank = 0;
  EXPECT_EQ(
      rendezvous_of({"--nnodes=2", "--rdzv-backend=file", "--rdzv-endpoint=/s", "--node-rank=0"}),
      second);
}

TEST(NodeRank, StaysBelowTheNumberOfNodesAndSpares) {
  EXPECT_EQ(complaint_about(with(static_pair(), {"--node-rank=2"})),
            "--node-rank 2: out of range; give a rank below the number of nodes, 2");
  EXPECT_EQ(spec_despite_warnings(with(c10d_pair(), {"--node-rank=2"})).rendezvous,
            c10d_pair_spec());
  EXPECT_EQ(warnings_of(with(c10d_pair(), {"--node-rank=2"})),
            Words({"--node-rank 2 is ignored: there are at most 2 nodes, spares included"}));
  RendezvousSpec spare = c10d_pair_spec();
  spare.node_rank = 2;
  spare.spares = 1;
  spare.times.lease_s = 3;
  EXPECT_EQ(rendezvous_of(with(c10d_pair(), {"--node-rank=2", "--spares=1"})), spare);
  EXPECT_EQ(warnings_of(with(c10d_pair(), {"--node-rank=3", "--spares=1"})),
            Words({"--node-rank 3 is ignored: there are at most 3 nodes, spares included"}));
}

TEST(NodeRank, IsZeroInAJobOfOneNode) {
  EXPECT_EQ(spec_despite_warnings({"--node-rank", "3"}).rendezvous, silent_default());
  EXPECT_EQ(warnings_of({"--node-rank", "3"}),
            Words({"--node-rank 3 is ignored: there is one node, whose rank is 0"}));
  EXPECT_EQ(warnings_of({}, {{"PET_NODE_RANK", "1"}}),
            Words({"PET_NODE_RANK=1 is ignored: there is one node, whose rank is 0"}));
  EXPECT_EQ(complaint_about({"--node-rank", "1", "--master-port", "1234"}),
            "--node-rank 1: out of range; give a rank below the number of nodes, 1");
}

TEST(RendezvousOptions, NameFlagValueAndRemedyOfJunk) {
  const std::vector<std::pair<Words, std::string>> cases{
      {{"--nnodes", "4:2"}, "--nnodes 4:2: the minimum 4 is above the maximum 2; give MIN:MAX"},
      {{"--node-rank", "-1"}, "--node-rank -1: out of range; give 0 or more"},
      {{"--master-port", "65536"}, "--master-port 65536: out of range; give 0 to 65535"},
      {{"--master-port", "1", "--master-addr", "a b"},
       "--master-addr 'a b': 'a b' is not a host name or address; give HOST[:PORT]"},
      {{"--master-port", "1", "--master-addr="},
       "--master-addr '': the host is missing; give HOST[:PORT]"},
      {{"--rdzv-backend", "etdc"},
       "--rdzv-backend etdc: unknown; give one of static, c10d, file, etcd"},
      {{"--rdzv-endpoint", "node0"},
       "--rdzv-endpoint node0: the static backend needs a port; give HOST:PORT"},
      {{"--rdzv-endpoint", "node0:x"},
       "--rdzv-endpoint node0:x: port x is not a number from 0 to 65535"},
      {{"--rdzv-conf", "a"}, "--rdzv-conf a: key a has no value; give KEY=VALUE,KEY=VALUE"},
      {{"--rdzv-conf", "join_timeout=0"},
       "--rdzv-conf join_timeout=0: join_timeout=0 is out of range; give 1 or more"},
      {{"--rdzv-conf", "backend=c10d"},
       "--rdzv-conf backend=c10d: key backend is set by --rdzv-backend instead"},
      {{"--master-port", "1", "--rdzv-conf", "timeout=x"},
       "--rdzv-conf timeout=x: timeout=x is not a whole number; give 1 or more"},
  };
  for (const auto& [flags, expected] : cases)
    EXPECT_EQ(complaint_about(flags), expected);
}

TEST(RendezvousOptions, AreCheckedForSeveralNodes) {
  const std::string no_place = "; give --rdzv-backend c10d";
  const std::vector<std::pair<Words, std::string>> cases{
      {{"--nnodes", "2", "--rdzv-endpoint", "n0:x"},
       "--rdzv-endpoint n0:x: port x is not a number from 0 to 65535"},
      {{"--spares", "1"},
       "--spares 1: no other node can join a job that meets on a port of its own" + no_place},
      {{"--standalone", "--spares", "1"},
       "--spares 1: no other node can join a job that meets on a port of its own" + no_place},
      {with(static_pair(), {"--spares", "1"}),
       "--spares 1: the static backend has a fixed number of nodes and no spares" + no_place},
      {with(c10d_pair(), {"--spares", "-1"}), "--spares -1: out of range; give 0 to 100000"},
      {with(c10d_pair(), {"--max-membership-changes", "-1"}),
       "--max-membership-changes -1: out of range; give 0 or more"},
      {with(c10d_pair(), {"--worker-port", "1"}),
       "--worker-port 1: that is the port where the nodes meet, which serves the workers as well; "
       "leave it out or give another port"},
      {with(static_pair(), {"--worker-port", "1"}),
       "--worker-port 1: that is the port where the nodes meet, which serves the workers as well; "
       "leave it out or give another port"},
      {{"--worker-port", "0"}, "--worker-port 0: out of range; give 1 to 65535"},
      {{"--start-timeout", "0"}, "--start-timeout 0: out of range; give seconds, more than 0"},
      {{"--lease", "x"}, "--lease x: not a number; give seconds, more than 0"},
      {{"--lease", "0.01"},
       "--lease 0.01: out of range; give at least 0.1 seconds, or a busy node looks like a lost "
       "one"},
      {{"--iface", "eth0,eth1"},
       "--iface eth0,eth1: no interface can have that name; `ip link` lists the names"},
      {{"--iface", ""}, "--iface '': no interface can have that name; `ip link` lists the names"},
      {{"--iface", "sixteen-letters0"},
       "--iface sixteen-letters0: no interface can have that name; `ip link` lists the names"},
      {{"--store-allow", "10.0.0.0/33"},
       "--store-allow 10.0.0.0/33: 10.0.0.0/33 is neither an address nor a network; give for "
       "example 10.0.0.0/8,fd00::/8, or any"},
      {{"--store-allow", "any,10.0.0.0/8"},
       "--store-allow any,10.0.0.0/8: any is neither an address nor a network; give for example "
       "10.0.0.0/8,fd00::/8, or any"},
      {{"--store-limit", "1GB"},
       "--store-limit 1GB: not a size; give for example 512M, 4G or a number of bytes"},
      {{"--store-limit", "99999999999G"},
       "--store-limit 99999999999G: not a size; give for example 512M, 4G or a number of bytes"},
      {{"--store-limit", "-1"},
       "--store-limit -1: not a size; give for example 512M, 4G or a number of bytes"},
      {{"--store-limit", "5"},
       "--store-limit 5: too small; give at least 1M: PyTorch itself keeps addresses of all ranks "
       "there"},
      {{"--rdzv-token-file", ""}, "--rdzv-token-file '': no file is given; give its PATH"},
  };
  for (const auto& [flags, expected] : cases)
    EXPECT_EQ(complaint_about(flags), expected);
}

TEST(RendezvousOptions, ChangeWhatTheySayAndNothingElse) {
  const std::vector<std::pair<Words, std::function<void(RendezvousSpec&)>>> cases{
      {{"--spares", "2"},
       [](RendezvousSpec& s) {
         s.spares = 2;
         s.times.lease_s = 3;
       }},
      {{"--max-membership-changes", "0"}, [](RendezvousSpec& s) { s.max_membership_changes = 0; }},
      {{"--worker-port", "2"}, [](RendezvousSpec& s) { s.worker_port = 2; }},
      {{"--lease", "0.5"}, [](RendezvousSpec& s) { s.times.lease_s = 0.5; }},
      {{"--start-timeout", "7.5"}, [](RendezvousSpec& s) { s.times.join_timeout_s = 7.5; }},
      {{"--iface", "eth0.7"}, [](RendezvousSpec& s) { s.iface = "eth0.7"; }},
      {{"--no-iface-env"}, [](RendezvousSpec& s) { s.export_iface = false; }},
      {{"--rdzv-token-file", "/t"}, [](RendezvousSpec& s) { s.token_file = "/t"; }},
      {{"--store-allow", "any"}, [](RendezvousSpec& s) { s.store_allow_any = true; }},
      {{"--store-limit", "512M"}, [](RendezvousSpec& s) { s.store_bytes_max = size_t{512} << 20; }},
      {{"--store-limit", "2000000"}, [](RendezvousSpec& s) { s.store_bytes_max = 2000000; }},
      {{"--store-allow", "10.0.0.0/8,fd00::/8"},
       [](RendezvousSpec& s) {
         s.store_allow = {*Network::parse("10.0.0.0/8"), *Network::parse("fd00::/8")};
       }},
  };
  for (const auto& [flags, change] : cases) {
    RendezvousSpec expected = c10d_pair_spec();
    change(expected);
    EXPECT_EQ(rendezvous_of(with(c10d_pair(), flags)), expected) << testing::PrintToString(flags);
  }
}

struct ConfCase {
  std::string conf;
  std::function<void(RendezvousSpec&)> change;
};

void expect_conf(const Words& flags, const RendezvousSpec& plain,
                 const std::vector<ConfCase>& cases) {
  for (const auto& [conf, change] : cases) {
    RendezvousSpec expected = plain;
    change(expected);
    RendezvousSpec got = rendezvous_of(with(flags, {"--rdzv-conf", conf}));
    got.conf.clear();
    EXPECT_EQ(got, expected) << conf;
  }
}

TEST(RendezvousConf, BecomesTypedValuesOfC10d) {
  expect_conf(c10d_pair(), c10d_pair_spec(),
              {{"join_timeout=5", [](auto& s) { s.times.join_timeout_s = 5; }},
               {"last_call_timeout=6", [](auto& s) { s.times.last_call_s = 6; }},
               {"read_timeout=8", [](auto& s) { s.times.reach_timeout_s = 8; }},
               {"is_host=True", [](auto& s) { s.is_host = true; }},
               {"is_host=n", [](auto& s) { s.is_host = false; }},
               {"store_type=tcp", [](auto&) {}},
               {"join_timeout=1_000", [](auto& s) { s.times.join_timeout_s = 1000; }}});
}

TEST(RendezvousConf, DoesNotSetTheHostOfAJobWithAStoreOfItsOwn) {
  EXPECT_EQ(rendezvous_of({"--rdzv-conf=is_host=0"}).is_host, std::nullopt);
  EXPECT_EQ(rendezvous_of({"--standalone", "--rdzv-conf=is_host=0"}).is_host, std::nullopt);
  EXPECT_EQ(
      rendezvous_of({"--rdzv-backend=c10d", "--rdzv-endpoint=n0", "--rdzv-conf=is_host=0"}).is_host,
      std::optional<bool>(false));
}

// torch's own tests leave the quotes in; only the key in the middle is known.
TEST(RendezvousConf, KeepsOnlyTheMiddleOfAQuotedList) {
  const Words flags =
      with(c10d_pair(), {"--rdzv-conf='join_timeout=5,last_call_timeout=1,timeout=5'"});
  RendezvousTimes expected = c10d_pair_spec().times;
  expected.last_call_s = 1;
  EXPECT_EQ(spec_despite_warnings(flags).rendezvous.times, expected);
  EXPECT_EQ(warnings_of(flags).size(),
            2u);  // The first key, and timeout, which c10d does not have.
}

TEST(RendezvousConf, MeansTheSameForTheFileBackendAsForC10d) {
  expect_conf({"--nnodes=2", "--rdzv-backend=file", "--rdzv-endpoint=/s"}, meeting_in("/s", 2, 2),
              {{"join_timeout=5", [](auto& s) { s.times.join_timeout_s = 5; }},
               {"last_call_timeout=6", [](auto& s) { s.times.last_call_s = 6; }},
               {"keep_alive_interval=1", [](auto& s) { s.times.lease_s = 3; }},
               {"keep_alive_max_attempt=1", [](auto& s) { s.times.lease_s = 5; }},
               {"store_type=FILE", [](auto&) {}}});
}

TEST(RendezvousOptions, GiveAJobThatNeedsAllItsNodesALongerLease) {
  const auto lease = [](const Words& flags) { return rendezvous_of(flags).times.lease_s; };
  EXPECT_EQ(lease(c10d_pair()), 15);
  EXPECT_EQ(lease(static_pair()), 15);
  EXPECT_EQ(lease({"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=n0:1"}), 3);
  EXPECT_EQ(lease(with(c10d_pair(), {"--lease=3"})), 3);
}

TEST(RendezvousConf, MakesTheLeaseOfIntervalAndAttempts) {
  expect_conf(
      c10d_pair(), c10d_pair_spec(),
      {{"keep_alive_interval=2", [](auto& s) { s.times.lease_s = 6; }},
       {"keep_alive_max_attempt=2", [](auto& s) { s.times.lease_s = 10; }},
       {"keep_alive_interval=2,keep_alive_max_attempt=4", [](auto& s) { s.times.lease_s = 8; }}});
  const Words flags = with(c10d_pair(), {"--rdzv-conf=keep_alive_interval=2", "--lease=1"});
  EXPECT_EQ(rendezvous_of(flags).times.lease_s, 1);
}

TEST(RendezvousConf, SetsTheTimeoutOfStaticNodes) {
  expect_conf(static_pair(), static_pair_spec(),
              {{"timeout=60", [](auto& s) { s.times.join_timeout_s = 60; }}});
  const Words flags = with(static_pair(), {"--rdzv-conf=timeout=60", "--start-timeout=7"});
  EXPECT_EQ(rendezvous_of(flags).times.join_timeout_s, 7);
}

TEST(RendezvousConf, LetsTheFlagWinOverBothTimeouts) {
  const Words flags =
      with(c10d_pair(), {"--rdzv-conf=join_timeout=60,read_timeout=60", "--start-timeout=7"});
  EXPECT_EQ(rendezvous_of(flags).times.join_timeout_s, 7);
  EXPECT_EQ(rendezvous_of(flags).times.reach_timeout_s, std::nullopt);
}

TEST(RendezvousConf, SaysWhichKeysDoNothing) {
  const Words of_static = with(static_pair(), {"--rdzv-conf=join_timeout=5"});
  EXPECT_EQ(spec_despite_warnings(of_static).rendezvous.times.join_timeout_s, 900);
  EXPECT_EQ(warnings_of(of_static), Words({"--rdzv-conf join_timeout=5: join_timeout has no "
                                           "meaning for the static backend and is ignored"}));
  EXPECT_EQ(warnings_of(with(c10d_pair(), {"--rdzv-conf=join_timeuot=5"})),
            Words({"--rdzv-conf join_timeuot=5: key join_timeuot is unknown and ignored"}));
  EXPECT_EQ(warnings_of(with(c10d_pair(), {"--rdzv-conf=close_timeout=5"})),
            Words({"--rdzv-conf close_timeout=5: close_timeout has no effect: the host of the job "
                   "stays until every node has left"}));
  EXPECT_EQ(warnings_of({"--rdzv-conf=timeout=5"}), Words{});  // One node waits for no other.
}

TEST(RendezvousToken, ComesFromItsVariableOrAFile) {
  const Environment token{{"MUSTER_TOKEN", "secret"}};
  RendezvousSpec expected = c10d_pair_spec();
  expected.token = "secret";
  EXPECT_EQ(rendezvous_of(c10d_pair(), token), expected);

  const Words with_file = with(c10d_pair(), {"--rdzv-token-file=/t"});
  expected = c10d_pair_spec();
  expected.token_file = "/t";
  EXPECT_EQ(spec_despite_warnings(with_file, token).rendezvous, expected);
  EXPECT_EQ(warnings_of(with_file, token),
            Words({"MUSTER_TOKEN is ignored: --rdzv-token-file /t wins"}));
}

TEST(RendezvousToken, IsNotEmpty) {
  for (const char* empty : {"", " ", "\n"}) {
    EXPECT_EQ(complaint_about(c10d_pair(), {{"MUSTER_TOKEN", empty}}),
              "MUSTER_TOKEN is set and empty; unset it or give the job's secret");
  }
}

}  // namespace
}  // namespace muster
