#include "launcher/endpoint.h"

#include <map>
#include <string>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster {

void PrintTo(const NodeRange& range, std::ostream* out) {
  *out << range.min << ":" << range.max;
}
void PrintTo(const Endpoint& endpoint, std::ostream* out) {
  *out << "host '" << endpoint.host << "' port " << endpoint.port.value_or(-1);
}

namespace {

template <typename T>
std::string reason(const Parsed<T>& parsed) {
  return parsed ? "no problem" : parsed.error();
}

TEST(NodeRangeText, IsOneNumberOrTwo) {
  const std::map<std::string, NodeRange> ranges{
      {"1", {1, 1}},       {"2:20", {2, 20}}, {"3:3", {3, 3}},
      {" 1 : 2 ", {1, 2}}, {"1_0", {10, 10}}, {"+1:+2", {1, 2}},
  };
  for (const auto& [text, range] : ranges) {
    EXPECT_EQ(parse_node_range(text), Parsed<NodeRange>(range)) << text;
  }
}

TEST(NodeRangeText, SaysWhatIsWrong) {
  const std::map<std::string, std::string> problems{
      {"2:20:30", "too many colons; give N or MIN:MAX"},
      {"", "not a whole number; give 1 or more, as N or MIN:MAX"},
      {"x", "not a whole number; give 1 or more, as N or MIN:MAX"},
      {"1:", "not a whole number; give 1 or more, as N or MIN:MAX"},
      {":2", "not a whole number; give 1 or more, as N or MIN:MAX"},
      {"1:x", "not a whole number; give 1 or more, as N or MIN:MAX"},
      {"1.5", "not a whole number; give 1 or more, as N or MIN:MAX"},
      {"0", "out of range; give 1 or more, as N or MIN:MAX"},
      {"-1", "out of range; give 1 or more, as N or MIN:MAX"},
      {"0:2", "out of range; give 1 or more, as N or MIN:MAX"},
      {"4:2", "the minimum 4 is above the maximum 2; give MIN:MAX"},
  };
  for (const auto& [text, expected] : problems) {
    EXPECT_EQ(reason(parse_node_range(text)), expected) << text;
  }
}

TEST(EndpointText, IsAHostAndPerhapsAPort) {
  const std::map<std::string, Endpoint> endpoints{
      {"", {"", std::nullopt}},
      {"  ", {"", std::nullopt}},
      {"localhost", {"localhost", std::nullopt}},
      {"localhost:1234", {"localhost", 1234}},
      {" node-0.cluster_1.org:29400 ", {"node-0.cluster_1.org", 29400}},
      {"10.0.0.1:0", {"10.0.0.1", 0}},
      {"host:65535", {"host", 65535}},
      {"host:00080", {"host", 80}},
      {"[::1]", {"::1", std::nullopt}},
      {"[::1]:29400", {"::1", 29400}},
      {"[fe80::a:b]:1", {"fe80::a:b", 1}},
      {"fe80::1:29500", {"fe80::1", 29500}},
      {"[localhost]:7", {"localhost", 7}},
      {"b\xc3\xbc"
       "cher:80",
       {"b\xc3\xbc"
        "cher",
        80}},
  };
  for (const auto& [text, endpoint] : endpoints) {
    EXPECT_EQ(parse_endpoint(text), Parsed<Endpoint>(endpoint)) << text;
  }
}

TEST(EndpointText, NamesABadPort) {
  const std::map<std::string, std::string> problems{
      {"host:", "port '' is not a number from 0 to 65535"},
      {"host:x", "port x is not a number from 0 to 65535"},
      {"host:-1", "port -1 is not a number from 0 to 65535"},
      {"host:65536", "port 65536 is not a number from 0 to 65535"},
      {"host:123456", "port 123456 is not a number from 0 to 65535"},
      {"host:1_0", "port 1_0 is not a number from 0 to 65535"},
      {"host: 80", "port ' 80' is not a number from 0 to 65535"},
      {"http://host", "port //host is not a number from 0 to 65535"},
  };
  for (const auto& [text, expected] : problems) {
    EXPECT_EQ(reason(parse_endpoint(text)), expected) << text;
  }
}

TEST(EndpointText, NamesABadHost) {
  const std::map<std::string, std::string> problems{
      {":29400", "the host is missing; give HOST[:PORT]"},
      {"a b:1", "'a b' is not a host name or address; give HOST[:PORT]"},
      {"a/b", "a/b is not a host name or address; give HOST[:PORT]"},
      {"host\n:1", "host\\n is not a host name or address; give HOST[:PORT]"},
      {"::1", ": is not an IPv6 address; put the address in brackets, as in [::1]:29400"},
      {"[::g]:1", "::g is not an IPv6 address; put the address in brackets, as in [::1]:29400"},
      {"a:b:80", "a:b is not an IPv6 address; put the address in brackets, as in [::1]:29400"},
  };
  for (const auto& [text, expected] : problems) {
    EXPECT_EQ(reason(parse_endpoint(text)), expected) << text;
  }
}

RC_GTEST_PROP(EndpointText, ReadsBackHostAndPort, ()) {
  const auto port = *rc::gen::inRange(0, 65536);
  const auto host = *rc::gen::nonEmpty(
      rc::gen::container<std::string>(rc::gen::elementOf(std::string("abcXYZ019.-_"))));
  const Endpoint expected{host, port};
  RC_ASSERT((parse_endpoint(host + ":" + std::to_string(port)).value() == expected));
}

RC_GTEST_PROP(EndpointText, EndsInAnAnswerForAnyText, (const std::string& text)) {
  const Parsed<Endpoint> endpoint = parse_endpoint(text);
  RC_ASSERT((endpoint.has_value() || endpoint.error().find('\n') == std::string::npos));
}

TEST(RendezvousConfText, IsAListOfPairs) {
  const std::map<std::string, RendezvousConf> confs{
      {"", {}},
      {"  ", {}},
      {"a=1", {{"a", "1"}}},
      {" a = 1 , b = 2 ", {{"a", "1"}, {"b", "2"}}},
      {"a=b=c", {{"a", "b=c"}}},
      {"b=1,a=2,b=3", {{"b", "3"}, {"a", "2"}}},
      {"'join_timeout=5,last_call_timeout=1,timeout=5'",
       {{"'join_timeout", "5"}, {"last_call_timeout", "1"}, {"timeout", "5'"}}},
  };
  for (const auto& [text, conf] : confs) {
    EXPECT_EQ(parse_rendezvous_conf(text), Parsed<RendezvousConf>(conf)) << text;
  }
}

TEST(RendezvousConfText, SaysWhatIsWrong) {
  const std::map<std::string, std::string> problems{
      {"a=1,", "an entry has no key; give KEY=VALUE,KEY=VALUE"},
      {",a=1", "an entry has no key; give KEY=VALUE,KEY=VALUE"},
      {"=1", "an entry has no key; give KEY=VALUE,KEY=VALUE"},
      {"a", "key a has no value; give KEY=VALUE,KEY=VALUE"},
      {"a=", "key a has no value; give KEY=VALUE,KEY=VALUE"},
      {"a=1,b= ,c=2", "key b has no value; give KEY=VALUE,KEY=VALUE"},
  };
  for (const auto& [text, expected] : problems) {
    EXPECT_EQ(reason(parse_rendezvous_conf(text)), expected) << text;
  }
}

std::string check(const std::string& backend, const std::string& text) {
  return reason(check_rendezvous_conf(backend, parse_rendezvous_conf(text).value()));
}

TEST(RendezvousConfCheck, AcceptsEveryKnownKeyWithItsType) {
  EXPECT_EQ(check("c10d",
                  "join_timeout=600,last_call_timeout=30,close_timeout=30,heartbeat_timeout=5,"
                  "keep_alive_interval=5,keep_alive_max_attempt=3,cas_backoff_max_seconds=0.5,"
                  "is_host=true,read_timeout=60,store_type=TCP"),
            "no problem");
  EXPECT_EQ(check("static", "timeout=900"), "no problem");
  for (const char* yes_or_no : {"1", "true", "t", "YES", "y", "0", "False", "f", "no", "N"}) {
    EXPECT_EQ(check("c10d", std::string("is_host=") + yes_or_no), "no problem") << yes_or_no;
  }
}

TEST(RendezvousConfCheck, RefusesAValueOfAnotherType) {
  const std::map<std::string, std::string> problems{
      {"join_timeout=x", "join_timeout=x is not a whole number; give 1 or more"},
      {"join_timeout=0", "join_timeout=0 is out of range; give 1 or more"},
      {"last_call_timeout=-1", "last_call_timeout=-1 is out of range; give 1 or more"},
      {"read_timeout=1.5", "read_timeout=1.5 is not a whole number; give 1 or more"},
      {"cas_backoff_max_seconds=-1", "cas_backoff_max_seconds=-1 is not a number of 0 or more"},
      {"cas_backoff_max_seconds=inf", "cas_backoff_max_seconds=inf is not a number of 0 or more"},
      {"is_host=maybe", "is_host=maybe is neither true nor false; give true or false"},
      {"store_type=disk", "store_type=disk is unknown; give tcp or file"},
  };
  for (const auto& [text, expected] : problems)
    EXPECT_EQ(check("c10d", text), expected) << text;
}

TEST(RendezvousConfCheck, IgnoresKeysOfOtherBackendsAndUnknownOnes) {
  EXPECT_EQ(check("c10d", "timeout=x,colour=red"), "no problem");
  EXPECT_EQ(check("static", "join_timeout=x,is_host=maybe"), "no problem");
  EXPECT_EQ(check("static", "timeout=x"), "timeout=x is not a whole number; give 1 or more");
  EXPECT_EQ(check("file", "join_timeout=0"), "join_timeout=0 is out of range; give 1 or more");
  EXPECT_EQ(check("file", "is_host=maybe,join_timeout=1"), "no problem");
  EXPECT_EQ(check("unknown", "timeout=x"), "no problem");
}

TEST(RendezvousConfCheck, LeavesQuotesInPlace) {
  const std::string quoted = "'join_timeout=x,last_call_timeout=1,timeout=5'";
  EXPECT_EQ(check("c10d", quoted), "no problem");
  EXPECT_EQ(check("static", quoted), "timeout=5' is not a whole number; give 1 or more");
}

using Phrases = std::vector<std::string>;

TEST(RendezvousConfKeys, AreReportedIfTheyAreUnknown) {
  const auto unknown = [](const std::string& text) {
    return unknown_conf_keys(parse_rendezvous_conf(text).value());
  };
  EXPECT_EQ(unknown("join_timeout=1,is_host=0,store_type=tcp,timeout=1"), Phrases{});
  EXPECT_EQ(
      unknown("join_timeuot=1,timeout=2,a b=1"),
      Phrases({"key join_timeuot is unknown and ignored", "key 'a b' is unknown and ignored"}));
  EXPECT_EQ(unknown("'join_timeout=1"),
            Phrases({"key 'join_timeout is unknown and ignored; the quotes came from the command "
                     "line and are part of it"}));
}

TEST(RendezvousConfKeys, AreReportedIfTheyMeanNothingToTheBackend) {
  const auto of_others = [](const std::string& backend, const std::string& text) {
    return conf_keys_without_effect(backend, parse_rendezvous_conf(text).value());
  };
  EXPECT_EQ(of_others("c10d", "join_timeout=1,is_host=0,store_type=tcp,read_timeout=1,colour=1"),
            Phrases{});
  EXPECT_EQ(of_others("static", "timeout=1"), Phrases{});
  EXPECT_EQ(of_others("c10d", "timeout=1,last_call_timeout=1"),
            Phrases({"timeout has no meaning for the c10d backend and is ignored"}));
  EXPECT_EQ(of_others("static", "is_host=1"),
            Phrases({"is_host has no meaning for the static backend and is ignored"}));
  EXPECT_EQ(of_others("file", "is_host=1,join_timeout=1"),
            Phrases({"is_host has no meaning for the file backend and is ignored"}));
}

TEST(RendezvousConfKeys, AreReportedWithTheReasonIfTheyNeverHaveAnEffect) {
  const RendezvousConf conf =
      parse_rendezvous_conf("close_timeout=7,heartbeat_timeout=9,cas_backoff_max_seconds=1")
          .value();
  const Phrases expected{
      "close_timeout has no effect: the host of the job stays until every node has left",
      "heartbeat_timeout has no effect: a node is lost once it has been silent for --lease",
      "cas_backoff_max_seconds has no effect: nodes do not compete for a shared value here"};
  EXPECT_EQ(conf_keys_without_effect("c10d", conf), expected);
  EXPECT_EQ(conf_keys_without_effect("file", conf), expected);
}

TEST(TruthText, IsReadAsTorchrunReadsIt) {
  for (const char* yes : {"1", "true", "t", "YES", "y", "True"})
    EXPECT_EQ(truth_of(yes), std::optional<bool>(true)) << yes;
  for (const char* no : {"0", "False", "f", "no", "N"})
    EXPECT_EQ(truth_of(no), std::optional<bool>(false)) << no;
  for (const char* junk : {"", "on", "2", "yes "})
    EXPECT_EQ(truth_of(junk), std::nullopt) << junk;
}

TEST(NetworkList, TakesAddressesAndNetworksOfBothFamilies) {
  using Networks = std::vector<std::string>;
  const auto parsed = [](const std::string& text) {
    Networks networks;
    const auto list = parse_networks(text);
    for (const Network& network : list.value())
      networks.push_back(network.to_string());
    return networks;
  };
  const std::map<std::string, Networks> lists{
      {"10.0.0.0/8", {"10.0.0.0/8"}},
      {"192.0.2.7", {"192.0.2.7/32"}},
      {" 10.0.0.0/8 , fd00::/8 ", {"10.0.0.0/8", "fd00::/8"}},
      {"0.0.0.0/0,::/0", {"0.0.0.0/0", "::/0"}},
      {"::1/128,1.2.3.4/32", {"::1/128", "1.2.3.4/32"}},
  };
  for (const auto& [text, networks] : lists)
    EXPECT_EQ(parsed(text), networks) << text;
}

TEST(NetworkList, NamesWhatIsNoNetwork) {
  const std::string remedy =
      " is neither an address nor a network; give for example 10.0.0.0/8,fd00::/8, or any";
  for (const char* bad :
       {"10.0.0.0/33", "::/129", "10.0.0/8", "node0", "10.0.0.1/", "10.0.0.1/x", "10.0.0.1/8/8",
        "1.2.3.4/+8", "any", "fe80::1%2", "fe80::%2/64", "[::1]"}) {
    EXPECT_EQ(reason(parse_networks(bad)), bad + remedy);
    EXPECT_EQ(reason(parse_networks("10.0.0.1," + std::string(bad))), bad + remedy);
  }
  EXPECT_EQ(reason(parse_networks("")), "''" + remedy);
  EXPECT_EQ(reason(parse_networks("10.0.0.1,")), "''" + remedy);
}

RC_GTEST_PROP(NetworkList, EndsInAnAnswerForAnyText, (const std::string& text)) {
  const auto networks = parse_networks(text);
  RC_ASSERT((networks.has_value() || networks.error().find('\n') == std::string::npos));
}

TEST(RendezvousConfCheck, NamesTheFlagsOfReservedKeys) {
  const std::map<std::string, std::string> problems{
      {"backend", "--rdzv-backend"}, {"endpoint", "--rdzv-endpoint"},
      {"run_id", "--rdzv-id"},       {"min_nodes", "--nnodes"},
      {"max_nodes", "--nnodes"},     {"local_addr", "--local-addr"},
  };
  for (const auto& [key, flag] : problems) {
    EXPECT_EQ(check("c10d", key + "=1"), "key " + key + " is set by " + flag + " instead");
  }
}

TEST(RendezvousConfValue, IsFoundByItsKey) {
  const RendezvousConf conf{{"a", "1"}, {"b", "2"}};
  EXPECT_EQ(conf_value(conf, "b"), "2");
  EXPECT_EQ(conf_value(conf, "c"), std::nullopt);
}

}  // namespace
}  // namespace muster
