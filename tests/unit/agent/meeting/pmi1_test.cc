#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "agent/meeting/pmi_answer.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using Lines = std::vector<std::string>;

// Hydra 4.0.2 as one process sees it; `answers` overrides its answers, by command.
struct FakeHydra {
  std::map<std::string, std::string> values;  // Published by rank 0.
  std::map<std::string, std::string> answers;
  Lines requests;

  Result<std::string> operator()(const std::string& request) {
    requests.push_back(request);
    const std::string command = request.substr(0, request.find(' '));
    if (const auto other = answers.find(command); other != answers.end()) return other->second;
    if (command == "cmd=init") return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
    if (command == "cmd=get_maxes")
      return "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024";
    if (command == "cmd=get_my_kvsname") return "cmd=my_kvsname kvsname=kvs_7";
    if (command == "cmd=barrier_in") return "cmd=barrier_out";
    if (command == "cmd=finalize") return "cmd=finalize_ack";
    const size_t key = request.find(" key=") + 5;
    const size_t value = request.find(" value=");
    if (command == "cmd=put") {
      values[request.substr(key, value - key)] = request.substr(value + 7);
      return "cmd=put_result rc=0 msg=success";
    }
    const auto found = values.find(request.substr(key));
    if (found == values.end())
      return "cmd=get_result rc=-1 msg=key_" + request.substr(key) + "_not_found value=unknown";
    return "cmd=get_result rc=0 msg=success value=" + found->second;
  }

  Result<PmiAnswer> ask(int64_t rank, const std::string& host) {
    return ask_pmi1({rank, 3, pmi_record(host, 1).value()}, std::ref(*this));
  }
};

TEST(Pmi1, Rank0PublishesAndTheOthersRead) {
  FakeHydra hydra;
  EXPECT_EQ(hydra.ask(0, "a"), (PmiAnswer{"a", "kvs_7-0000000000000001", 0, 3}));
  const std::string value = "3030303030303030303030303030303161.";
  EXPECT_EQ(hydra.requests,
            (Lines{"cmd=init pmi_version=1 pmi_subversion=1", "cmd=get_maxes", "cmd=get_my_kvsname",
                   "cmd=put kvsname=kvs_7 key=muster-0 value=" + value, "cmd=barrier_in",
                   "cmd=get kvsname=kvs_7 key=muster-0", "cmd=finalize"}));
  hydra.requests.clear();
  EXPECT_EQ(hydra.ask(2, "b"), (PmiAnswer{"a", "kvs_7-0000000000000001", 2, 3}));
  EXPECT_EQ(hydra.requests,
            (Lines{"cmd=init pmi_version=1 pmi_subversion=1", "cmd=get_maxes", "cmd=get_my_kvsname",
                   "cmd=barrier_in", "cmd=get kvsname=kvs_7 key=muster-0", "cmd=finalize"}));
}

TEST(Pmi1, TheLongestTextComesInPiecesThatFit) {
  FakeHydra hydra;
  hydra.answers["cmd=get_maxes"] = "cmd=maxes vallen_max=64";
  const std::string host(1000, 'x');
  EXPECT_EQ(hydra.ask(0, host).value().host, host);
  EXPECT_EQ(hydra.values.size(), 33u);
  for (const auto& [key, value] : hydra.values)
    EXPECT_LT(value.size(), 64u);
  hydra.answers["cmd=get_maxes"] = "cmd=maxes vallen_max=1000000";
  hydra.requests.clear();
  EXPECT_EQ(hydra.ask(0, host).value().host, host);
  for (const std::string& request : hydra.requests)
    EXPECT_LT(request.size(), 600u);
}

TEST(Pmi1, AnUnknownAnswerIsQuotedInTheError) {
  const std::pair<const char*, const char*> answers[] = {
      {"cmd=init", "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=-1"},
      {"cmd=init", ""},
      {"cmd=init", "HTTP/1.1 400 Bad Request"},
      {"cmd=get_maxes", "cmd=maxes kvsname_max=256"},
      {"cmd=get_my_kvsname", "cmd=maxes kvsname=k"},
      {"cmd=put", "cmd=put_result rc=-1 msg=value_too_long"},
      {"cmd=put", "cmd=put_result"},
      {"cmd=barrier_in", "rc=0 cmd=barrier_out"},
      {"cmd=get", "cmd=get_result rc=-1 msg=key_not_found value=unknown"}};
  for (const auto& [command, answer] : answers) {
    FakeHydra hydra;
    hydra.answers[command] = answer;
    EXPECT_EQ(hydra.ask(0, "a").error().message,
              std::string("PMI's answer to ") + command + " is \"" + answer + "\"");
  }
  FakeHydra hydra;
  hydra.answers["cmd=init"] = "\x1b[2J" + std::string(4000, 'x');
  EXPECT_EQ(hydra.ask(0, "a").error().message,
            "PMI's answer to cmd=init is \"?[2J" + std::string(196, 'x') + "\"");
}

TEST(Pmi1, InvalidLimitsAreRefused) {
  for (const char* number : {"", "0", "-1", "63", "1e9", "99999999999"}) {
    FakeHydra hydra;
    hydra.answers["cmd=get_maxes"] = std::string("cmd=maxes vallen_max=") + number;
    EXPECT_EQ(hydra.ask(0, "a").error().message,
              std::string("PMI takes only values of ") + number + " bytes");
  }
}

TEST(Pmi1, FailsIfRank0HasPublishedNoValue) {
  FakeHydra hydra;
  EXPECT_THAT(hydra.ask(1, "b").error().message, HasSubstr("key_muster-0_not_found"));
  EXPECT_NE(hydra.requests.back(), "cmd=finalize");
}

TEST(Pmi1, IgnoresTheAnswerToFinalize) {
  FakeHydra hydra;
  hydra.answers["cmd=finalize"] = "?";
  EXPECT_TRUE(hydra.ask(0, "a"));
}

RC_GTEST_PROP(Pmi1, AnyBytesGiveAnAnswerOrAnError, ()) {
  const std::vector<const char*> commands{"cmd=init",       "cmd=get_maxes", "cmd=get_my_kvsname",
                                          "cmd=barrier_in", "cmd=put",       "cmd=get"};
  const std::vector<std::string> words{
      "cmd=response_to_init", "cmd=maxes", "cmd=my_kvsname", "cmd=put_result", "cmd=barrier_out",
      "cmd=get_result",       "rc=0",      "value=61.",      "value=61+",      "kvsname=k",
      "vallen_max=64",        "=",         "cmd=",           "value="};
  FakeHydra hydra;
  for (const char* const command :
       *rc::gen::container<std::vector<const char*>>(rc::gen::elementOf(commands))) {
    std::string line;
    for (const std::string& word : *rc::gen::container<Lines>(
             rc::gen::oneOf(rc::gen::elementOf(words), rc::gen::arbitrary<std::string>())))
      line += (line.empty() ? "" : " ") + word;
    hydra.answers[command] = line;
  }
  const auto answer = hydra.ask(*rc::gen::inRange(-1, 4), "a");
  if (answer) RC_ASSERT(answer->rank >= 0 && answer->rank < answer->size);
  RC_ASSERT(hydra.requests.size() < 1100u);
}

}  // namespace
}  // namespace muster
