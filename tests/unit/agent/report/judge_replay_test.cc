// Judges recorded evidence of real failures again: tests/bench/first_cause.py recorded a run of
// each cell to tests/fixtures/first_cause, with the rank that failed first by the ranks' stamps.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/report/failure_wire.h"
#include "tests/unit/agent/report/report_samples.h"
#include "tests/unit/paths.h"

namespace muster {
namespace {

using nlohmann::json;

// Error of the host's estimate of another node's clock on the same machine.
constexpr Duration kClockError = std::chrono::microseconds(100);

std::vector<std::filesystem::path> recorded() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(paths::kFirstCause)) {
    if (entry.path().extension() == ".json") found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

// As the host received it.
membership::Testimony recorded_testimony(const json& file) {
  const Instant since{std::chrono::nanoseconds(file.at("since_ns").get<int64_t>())};
  const json& node = file.at("node");
  membership::Testimony testimony;
  testimony.host_name = node.at("host");
  testimony.node_rank = node.at("node_rank");
  testimony.evidence =
      membership::Evidence{since, testimony.node_rank > 0 ? kClockError : Duration{0}, node.dump()};
  std::vector<int> ranks;
  for (const json& worker : node.at("workers"))
    ranks.push_back(worker.at("signs").at("rank"));
  testimony.workers = static_cast<int>(ranks.size());
  testimony.base_rank = *std::ranges::min_element(ranks);
  return testimony;
}

JudgedAttempt judged_again(const json& sample) {
  std::vector<membership::Testimony> testimonies;
  for (const json& node : sample.at("nodes"))
    testimonies.push_back(recorded_testimony(node));
  return decoded_verdict(judge_testimonies(testimonies).verdict.detail);
}

TEST(JudgeReplay, HasASampleOfEveryCell) {
  EXPECT_EQ(recorded().size(), 24U);
}

TEST(JudgeReplay, NamesTheRankThatFailedFirst) {
  for (const std::filesystem::path& path : recorded()) {
    SCOPED_TRACE(path.filename());
    const json sample = json::parse(std::ifstream(path));
    for (const json& node : sample.at("nodes"))
      EXPECT_TRUE(decode_evidence(node.at("node").dump(), Instant{}, {}));
    const JudgedAttempt judged = judged_again(sample);
    ASSERT_TRUE(judged.culprit);
    EXPECT_EQ(judged.failures[*judged.culprit].rank, sample.at("truth"));
    EXPECT_FALSE(judged.cause.sentence.empty());
  }
}

}  // namespace
}  // namespace muster
