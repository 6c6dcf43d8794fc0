#include "agent/job/hang_bundle.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/report/result_json.h"
#include "tests/unit/agent/report/report_samples.h"

namespace muster {
namespace {

using BundleJson = nlohmann::ordered_json;
using Environment = std::map<std::string, std::string>;

RankRecords in_a_barrier(int rank) {
  RankRecords records;
  records.rank = rank;
  records.summary = "in barrier #3";
  return records;
}

RankStacks stacks_at(int rank, const std::string& function) {
  RankStacks stacks;
  stacks.rank = rank;
  stacks.threads = {{4711, "main", {{function, "train.cc", 88}}}};
  return stacks;
}

HangBundle sample_bundle() {
  HangBundle bundle;
  bundle.time = sample_time();
  bundle.run_id = "exp7";
  bundle.verdict = sample_hang();
  bundle.text = "rank 5 never entered\n  waiting: rank 0";
  bundle.world_size = 2;
  bundle.ranks = {1, 0};
  bundle.records = {in_a_barrier(0), in_a_barrier(1)};
  bundle.stacks = {stacks_at(1, "read"), stacks_at(0, "wait")};
  bundle.variables = {{0, {{"LANG", "C", 1}}}, {1, {{"LANG", "de", 2}}}};
  bundle.unanswered = {"node-c (ranks 2-3): no answer within 9 s"};
  return bundle;
}

std::vector<int> ranks_of_list(const BundleJson& list) {
  std::vector<int> ranks;
  for (const BundleJson& one : list)
    ranks.push_back(one["rank"]);
  return ranks;
}

// Compares the answers of nodes that have these environments.
BundleJson compared(const std::vector<Environment>& environments) {
  std::vector<NodeVariables> nodes;
  for (const Environment& environment : environments)
    nodes.push_back({static_cast<int>(nodes.size()), shown_variables(environment)});
  return differing_variables(nodes);
}

TEST(HangBundle, HoldsAllThatIsKnown) {
  const BundleJson file = BundleJson::parse(bundle_file(sample_bundle()));
  std::vector<std::string> keys;
  for (const auto& [key, value] : file.items())
    keys.push_back(key);
  EXPECT_EQ(keys,
            (std::vector<std::string>{"version", "time", "run_id", "verdict", "text", "variables",
                                      "unanswered", "left_out", "records", "stacks"}));
  EXPECT_EQ(file["version"], 1);
  EXPECT_EQ(file["time"], "2026-11-20T22:56:48.123Z");
  EXPECT_EQ(file["run_id"], "exp7");
  EXPECT_EQ(file["verdict"], hang_json(sample_hang()));
  EXPECT_EQ(file["text"], "rank 5 never entered\n  waiting: rank 0");
  EXPECT_EQ(file["unanswered"],
            BundleJson::parse(R"(["node-c (ranks 2-3): no answer within 9 s"])"));
  EXPECT_EQ(file["left_out"], 0);
  EXPECT_EQ(ranks_of_list(file["records"]), (std::vector<int>{0, 1}));
  EXPECT_EQ(file["records"][0]["summary"], "in barrier #3");
  EXPECT_EQ(ranks_of_list(file["stacks"]), (std::vector<int>{1, 0}));
  EXPECT_EQ(file["stacks"][0]["threads"][0]["frames"][0]["function"], "read");
  EXPECT_EQ(file["variables"], BundleJson::parse(R"([{"name":"LANG","values":[
      {"value":"C","nodes":[0]},{"value":"de","nodes":[1]}]}])"));
}

TEST(HangBundle, HasNoVerdictInADump) {
  HangBundle bundle;
  bundle.world_size = 3;
  const BundleJson file = BundleJson::parse(bundle_file(bundle));
  EXPECT_TRUE(file["verdict"].is_null());
  EXPECT_EQ(file["text"], "");
  EXPECT_EQ(file["left_out"], 3);
  for (const char* list : {"records", "stacks", "variables", "unanswered"})
    EXPECT_EQ(file[list], BundleJson::array()) << list;
}

TEST(HangBundle, LeavesOutTheRanksThatMatterLeast) {
  HangBundle bundle = sample_bundle();
  bundle.stacks = {stacks_at(1, std::string(1000, 'x')), stacks_at(0, std::string(1000, 'y'))};
  const size_t whole = bundle_file(bundle).size();
  EXPECT_EQ(BundleJson::parse(bundle_file(bundle, whole + 64))["left_out"], 0);
  const std::string cut = bundle_file(bundle, whole - 1);
  EXPECT_LT(cut.size(), whole);
  const BundleJson file = BundleJson::parse(cut);
  EXPECT_EQ(ranks_of_list(file["records"]), std::vector<int>{1});
  EXPECT_EQ(ranks_of_list(file["stacks"]), std::vector<int>{1});
  EXPECT_EQ(file["left_out"], 1);
}

TEST(HangBundle, IsNeverLongerThanItsLimit) {
  HangBundle bundle = sample_bundle();
  bundle.text = std::string(1 << 20, '"');
  for (int node = 0; node < 50; ++node) {
    Environment environment;
    for (int i = 0; i < 100; ++i)
      environment["V" + std::to_string(i)] = std::string(2000, static_cast<char>('a' + node % 26));
    bundle.variables.push_back({node, shown_variables(environment)});
  }
  bundle.unanswered.assign(5000, "no answer");
  for (const size_t limit : {size_t{1} << 18, size_t{1} << 20}) {
    const std::string file = bundle_file(bundle, limit);
    EXPECT_LT(file.size(), limit);
    EXPECT_TRUE(BundleJson::accept(file));
  }
}

TEST(HangBundle, ListsTheRanksOfTheVerdictFirst) {
  HangReport verdict;
  verdict.ranks = {5, 2};
  verdict.waiting = {3, 5, 0};
  EXPECT_EQ(bundle_ranks(verdict, 6), (std::vector<int>{5, 2, 3, 0, 1, 4}));
  EXPECT_EQ(bundle_ranks(verdict, 6, 3), (std::vector<int>{5, 2, 3}));
  EXPECT_EQ(bundle_ranks(std::nullopt, 6, 3), (std::vector<int>{0, 1, 2}));
}

TEST(HangBundleVariables, IncludeOnlyThoseThatDiffer) {
  EXPECT_EQ(compared({{{"A", "1"}, {"B", "x"}, {"C", ""}}, {{"A", "1"}, {"B", "y"}}}),
            BundleJson::parse(R"([{"name":"B","values":[{"value":"x","nodes":[0]},
                                                  {"value":"y","nodes":[1]}]},
                            {"name":"C","values":[{"value":"","nodes":[0]},
                                                  {"value":null,"nodes":[1]}]}])"));
  EXPECT_EQ(compared({{{"A", "1"}, {"B", "x"}}}), BundleJson::array());
  EXPECT_EQ(compared({}), BundleJson::array());
}

TEST(HangBundleVariables, PutTheMostFrequentValueFirst) {
  EXPECT_EQ(compared({{{"A", "x"}}, {{"A", "y"}}, {{"A", "y"}}}),
            BundleJson::parse(R"([{"name":"A","values":[{"value":"y","nodes":[1,2]},
                                                  {"value":"x","nodes":[0]}]}])"));
  std::vector<Environment> all_different;
  for (int i = 0; i < 100; ++i)
    all_different.push_back({{"A", std::to_string(i)}});
  EXPECT_EQ(compared(all_different)[0]["values"].size(), 16u);
}

TEST(HangBundleVariables, ExcludeThoseThatAreMeantToDiffer) {
  EXPECT_EQ(compared({{{"RANK", "0"}, {"PWD", "/a"}, {"_", "x"}, {"SLURM_PROCID", "0"}},
                      {{"RANK", "4"}, {"PWD", "/b"}, {"_", "y"}, {"SLURM_PROCID", "1"}}}),
            BundleJson::array());
  EXPECT_EQ(compared({{{"MY_RANK", "0"}}, {{"MY_RANK", "4"}}}).size(), 1u);
}

TEST(HangBundleVariables, HidePossibleSecrets) {
  for (const char* name : {"HF_TOKEN", "aws_secret_access", "MYSQL_PWD", "PGPASSWORD", "ApiKey",
                           "GOOGLE_CREDENTIALS", "XAUTHORITY", "COOKIE_FILE"}) {
    const control::Variables one = shown_variables({{name, "hunter2"}});
    ASSERT_EQ(one.size(), 1u) << name;
    EXPECT_EQ(one[0].value, std::nullopt) << name;
    const BundleJson differing =
        compared({{{name, "hunter2"}}, {{name, "hunter3"}}, {{name, "hunter2"}}});
    ASSERT_EQ(differing.size(), 1u) << name;
    EXPECT_EQ(differing[0]["values"], BundleJson::parse(R"json([{"value":"(hidden)","nodes":[0,2]},
                                                          {"value":"(hidden)","nodes":[1]}])json"));
    EXPECT_EQ(compared({{{name, "hunter2"}}, {{name, "hunter2"}}}), BundleJson::array()) << name;
  }
  for (const char* value :
       {"postgres://me:hunter2@db/x", "http://a/b,https://hunter2@c/", "host=db password=hunter2",
        "https://x/?sig=hunter2", "-----BEGIN RSA", "Bearer hunter2"}) {
    EXPECT_EQ(shown_variables({{"URL", value}})[0].value, std::nullopt) << value;
  }
  EXPECT_EQ(shown_variables({{"URL", "http://host/a@b"}})[0].value, "http://host/a@b");
}

// Too few to find a secret of which all but a few characters are known.
TEST(HangBundleVariables, RevealOnlySixteenBitsOfASecret) {
  std::set<int> digests;
  for (int i = 0; i < 200'000; ++i)
    digests.insert(shown_variables({{"TOKEN", "hf_" + std::to_string(i)}})[0].digest);
  EXPECT_GE(*digests.begin(), 0);
  EXPECT_LT(*digests.rbegin(), 65'536);
  // 200,000 fair draws leave out 3,100 of the 65,536.
  EXPECT_GT(digests.size(), 60'000u);
}

TEST(HangBundleVariables, AreComparedInFullThoughShownCut) {
  const std::string long_value(5000, 'x');
  EXPECT_EQ(shown_variables({{"A", long_value}})[0].value->size(), 1024u);
  EXPECT_EQ(compared({{{"A", long_value + "1"}}, {{"A", long_value + "2"}}}).size(), 1u);
}

}  // namespace
}  // namespace muster
