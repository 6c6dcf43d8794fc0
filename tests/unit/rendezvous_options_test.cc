#include "launcher/rendezvous_options.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/command_line_samples.h"

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
  return spec;
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

TEST(RendezvousMode, IsItsOwnStoreWhereNothingIsGiven) {
  EXPECT_EQ(rendezvous_of({}), silent_default());
  EXPECT_EQ(rendezvous_of({"--nnodes", "1"}), silent_default());
  EXPECT_EQ(rendezvous_of({"--nnodes=1:1", "--rdzv-backend", "static"}), silent_default());
  EXPECT_EQ(rendezvous_of({"--rdzv-endpoint", ""}), silent_default());
  EXPECT_EQ(rendezvous_of({"--master-addr", "10.0.0.1"}), silent_default());
  EXPECT_EQ(rendezvous_of({"--node-rank", "0"}), silent_default());
}

TEST(RendezvousMode, KeepsAnIdThatWasGiven) {
  EXPECT_EQ(rendezvous_of({"--rdzv-id", "job7"}), silent_default("job7"));
  EXPECT_EQ(rendezvous_of({"--rdzv-id", "none"}), silent_default("none"));
  EXPECT_EQ(rendezvous_of({}, {{"PET_RDZV_ID", "job7"}}), silent_default("job7"));
  EXPECT_EQ(rendezvous_of({"--standalone", "--rdzv-id", "job7"}), standalone("job7"));
}

TEST(RendezvousMode, IsStandaloneWhereThatIsGiven) {
  EXPECT_EQ(rendezvous_of({"--standalone"}), standalone());
  EXPECT_EQ(rendezvous_of({"--standalone", "--rdzv-backend=c10d", "--nnodes=1"}), standalone());
  EXPECT_EQ(rendezvous_of({"--standalone", "--master-port", "1234"}), standalone());
  EXPECT_EQ(rendezvous_of({}, {{"PET_STANDALONE", "1"}}), standalone());
}

TEST(RendezvousMode, SaysWhatStandaloneIgnores) {
  const Words flags{"--standalone", "--rdzv-backend", "etcd", "--rdzv-endpoint", "a b"};
  EXPECT_EQ(spec_despite_warnings(flags).rendezvous, standalone());
  EXPECT_EQ(warnings_of(flags),
            Words({"--rdzv-endpoint 'a b' is ignored: --standalone meets on a port of its own",
                   "--rdzv-backend etcd is ignored: --standalone meets on a port of its own"}));
  EXPECT_EQ(rendezvous_of({"--standalone"}, {{"PET_RDZV_ENDPOINT", "host:1"}}), standalone());
}

TEST(RendezvousMode, IsStaticWhereAPortOrAnEndpointIsGiven) {
  EXPECT_EQ(rendezvous_of({"--master-port", "1234"}),
            meeting_at("static", "127.0.0.1", 1234, "none"));
  EXPECT_EQ(rendezvous_of({}, {{"PET_MASTER_PORT", "1234"}}),
            meeting_at("static", "127.0.0.1", 1234, "none"));
  EXPECT_EQ(rendezvous_of({"--master-port", "1234", "--master-addr", "node0", "--rdzv-id", "a"}),
            meeting_at("static", "node0", 1234, "a"));
  EXPECT_EQ(rendezvous_of({"--rdzv-endpoint", "node0:77"}),
            meeting_at("static", "node0", 77, "none"));
  EXPECT_EQ(rendezvous_of({"--rdzv-endpoint", "node0:77", "--master-port", "1234"}),
            meeting_at("static", "node0", 77, "none"));
  EXPECT_EQ(rendezvous_of({"--master-port", "0"}), meeting_at("static", "127.0.0.1", 0, "none"));
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
  const Words flags{"--rdzv-backend", "c10d"};
  EXPECT_EQ(spec_despite_warnings(flags).rendezvous,
            meeting_at("c10d", "localhost", 29400, "none"));
  EXPECT_EQ(warnings_of(flags),
            Words({"--rdzv-backend c10d without --rdzv-endpoint: localhost:29400 is taken"}));
}

TEST(RendezvousMode, SaysThatAnEmptyIdIsMadeUp) {
  const Words flags{"--master-port", "1", "--rdzv-id="};
  EXPECT_EQ(spec_despite_warnings(flags).rendezvous, meeting_at("static", "127.0.0.1", 1, ""));
  EXPECT_EQ(warnings_of(flags), Words({"--rdzv-id '': the job has no name; muster makes one up"}));
}

TEST(RendezvousMode, KeepsTheQuotesOfAQuotedConf) {
  RendezvousSpec expected = silent_default();
  expected.conf = {{"'join_timeout", "5"}, {"last_call_timeout", "1"}, {"timeout", "5'"}};
  EXPECT_EQ(rendezvous_of({"--rdzv-conf='join_timeout=5,last_call_timeout=1,timeout=5'"}),
            expected);
}

TEST(NodeRank, OfOneNodeIsZero) {
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
      {{"--nnodes", "2:20:30"}, "--nnodes 2:20:30: too many colons; give N or MIN:MAX"},
      {{"--nnodes", "0"}, "--nnodes 0: out of range; give 1 or more, as N or MIN:MAX"},
      {{"--nnodes", "two"}, "--nnodes two: not a whole number; give 1 or more, as N or MIN:MAX"},
      {{"--node-rank", "-1"}, "--node-rank -1: out of range; give 0 or more"},
      {{"--node-rank", "x"}, "--node-rank x: not a whole number; give 0 or more"},
      {{"--master-port", "http"}, "--master-port http: not a whole number; give 0 to 65535"},
      {{"--master-port", "65536"}, "--master-port 65536: out of range; give 0 to 65535"},
      {{"--master-port", "1", "--master-addr", "a b"},
       "--master-addr 'a b': 'a b' is no host name or address; give HOST[:PORT]"},
      {{"--master-port", "1", "--master-addr="},
       "--master-addr '': there is no host; give HOST[:PORT]"},
      {{"--rdzv-backend", "etdc"},
       "--rdzv-backend etdc: unknown; give one of static, c10d, etcd, etcd-v2"},
      {{"--rdzv-endpoint", "node0"},
       "--rdzv-endpoint node0: the static backend needs a port; give HOST:PORT"},
      {{"--rdzv-endpoint", "node0:x"},
       "--rdzv-endpoint node0:x: port x is no number from 0 to 65535"},
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

TEST(RendezvousOptions, SayWhatOneMachineCannotServe) {
  const std::string serves = "; this build of muster serves one machine";
  const std::vector<std::pair<Words, std::string>> cases{
      {{"--nnodes", "2"}, "--nnodes 2 asks for more than one node" + serves},
      {{"--nnodes", "1:4"}, "--nnodes 1:4 asks for more than one node" + serves},
      {{"--standalone", "--nnodes", "2"}, "--nnodes 2 asks for more than one node" + serves},
      {{"--nnodes=2", "--node-rank=1", "--master-addr=n0", "--master-port=1"},
       "--nnodes 2 asks for more than one node" + serves},
      {{"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=n0:1"},
       "--nnodes 2 asks for more than one node" + serves},
  };
  for (const auto& [flags, beginning] : cases) {
    EXPECT_EQ(complaint_about(flags), beginning + ", so give --nnodes 1");
  }
  EXPECT_EQ(complaint_about({}, {{"PET_NNODES", "2"}}),
            "PET_NNODES=2 asks for more than one node" + serves + ", so give --nnodes 1");
  EXPECT_EQ(complaint_about({"--rdzv-backend", "etcd-v2"}),
            "--rdzv-backend etcd-v2: this build of muster serves one machine and has no etcd "
            "client; give --rdzv-backend c10d");
  EXPECT_EQ(complaint_about({"--rdzv-backend", "etcd", "--rdzv-endpoint", "e:2379"}),
            "--rdzv-backend etcd: this build of muster serves one machine and has no etcd client; "
            "give --rdzv-backend c10d");
  EXPECT_EQ(complaint_about({"--rdzv-backend=c10d", "--rdzv-endpoint=/tmp/store",
                             "--rdzv-conf=store_type=File"}),
            "--rdzv-conf store_type=File: this build of muster serves one machine and keeps no "
            "store in a file; leave out store_type");
}

TEST(RendezvousOptions, CheckMultiNodeFlagsBeforeRefusingThem) {
  EXPECT_EQ(complaint_about({"--nnodes", "2", "--node-rank", "2", "--master-port", "1"}),
            "--node-rank 2: out of range; give a rank below the number of nodes, 2");
  EXPECT_EQ(complaint_about({"--nnodes", "2", "--rdzv-endpoint", "n0:x"}),
            "--rdzv-endpoint n0:x: port x is no number from 0 to 65535");
}

}  // namespace
}  // namespace muster
