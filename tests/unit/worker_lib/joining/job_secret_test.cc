#include "worker_lib/joining/job_secret.h"

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/base/contract.h"
#include "rendezvous/base/hex.h"

namespace muster::worker {
namespace {

using testing::HasSubstr;
using testing::Not;

Identity rank_knowing(int rank, const std::string& secret) {
  Identity self;
  self.rank = rank;
  self.secret = secret;
  return self;
}

Members world_of(int size, int me) {
  Members world;
  for (int rank = 0; rank < size; ++rank)
    world.peers.push_back({{rank}, "node", "host", 100 + rank, "127.0.0.1"});
  world.me = me;
  return world;
}

// Returns what each rank concludes from the words of all.
std::vector<Outcome<std::string>> agree(const std::vector<std::string>& secrets) {
  const int size = static_cast<int>(secrets.size());
  std::vector<std::string> words;
  for (int rank = 0; rank < size; ++rank)
    words.push_back(secret_claim(rank_knowing(rank, secrets[static_cast<size_t>(rank)])));
  std::vector<Outcome<std::string>> outcomes;
  for (int rank = 0; rank < size; ++rank)
    outcomes.push_back(agree_on_secret(rank_knowing(rank, secrets[static_cast<size_t>(rank)]),
                                       world_of(size, rank), words));
  return outcomes;
}

const std::string kSecret(32, 's');
const std::string kOther(32, 'o');

TEST(JobSecret, UsesTheSecretThatAllRanksHave) {
  for (const auto& outcome : agree({kSecret, kSecret, kSecret}))
    EXPECT_EQ(outcome, kSecret);
  EXPECT_THAT(secret_claim(rank_knowing(0, kSecret)), Not(HasSubstr(to_hex(kSecret).substr(0, 8))));
}

TEST(JobSecret, RankZeroMakesASecretIfNoRankHasOne) {
  const auto outcomes = agree({"", "", ""});
  ASSERT_TRUE(outcomes[0].has_value());
  EXPECT_EQ(outcomes[0]->size(), 32U);
  EXPECT_EQ(outcomes[1], outcomes[0]);
  EXPECT_EQ(outcomes[2], outcomes[0]);
  EXPECT_NE(agree({"", ""})[0], outcomes[0]);
}

TEST(JobSecret, AllRanksNameTheOneThatDiffers) {
  struct Case {
    std::vector<std::string> secrets;
    int rank;
    const char* words;
  };
  const std::vector<Case> cases{
      {{kSecret, kSecret, ""}, 2, "has no MUSTER_WORKER_SECRET, rank 0 (host, pid 100) has one"},
      {{kSecret, kOther, ""},
       1,
       "has another MUSTER_WORKER_SECRET, rank 0 (host, pid 100) has one"},
      {{"", "", kSecret}, 2, "has a MUSTER_WORKER_SECRET, rank 0 (host, pid 100) has none"}};
  for (const Case& one : cases) {
    for (const auto& outcome : agree(one.secrets)) {
      ASSERT_FALSE(outcome.has_value()) << one.words;
      EXPECT_EQ(outcome.error().code, ErrorCode::environment);
      EXPECT_THAT(outcome.error().message, HasSubstr(one.words));
      EXPECT_THAT(outcome.error().ranks, testing::ElementsAre(GlobalRank{one.rank}));
    }
  }
}

// A process that can write the store could offer a secret of its own.
TEST(JobSecret, ARankWithASecretAcceptsNoOther) {
  const std::string his = secret_claim(rank_knowing(0, ""));
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{his, ""},
        {secret_claim(rank_knowing(0, kOther)), secret_claim(rank_knowing(1, kOther))}}) {
    const auto outcome = agree_on_secret(rank_knowing(1, kSecret), world_of(2, 1), words);
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().code, ErrorCode::environment);
    EXPECT_THAT(outcome.error().message,
                HasSubstr("have another MUSTER_WORKER_SECRET than this one"));
  }
}

TEST(JobSecret, RefusesAMalformedOffer) {
  for (const char* word : {"offers ", "offers 00", "offers xyz"}) {
    const auto outcome = agree_on_secret(rank_knowing(1, ""), world_of(2, 1), {word, ""});
    ASSERT_FALSE(outcome.has_value()) << word;
    EXPECT_EQ(outcome.error().code, ErrorCode::environment);
  }
}

TEST(JobSecret, IsReadFromItsVariableAndNeverShown) {
  const auto read = [](const std::optional<std::string>& value,
                       std::optional<std::string>& complaint) {
    const EnvironmentLookup lookup = [&](std::string_view name) {
      return name == env::kWorkerSecret ? value : std::nullopt;
    };
    EnvReader reader(lookup);
    const std::string secret = read_job_secret(reader);
    complaint = reader.complaint();
    return secret;
  };
  std::optional<std::string> complaint;
  EXPECT_EQ(read(to_hex(kSecret), complaint), kSecret);
  EXPECT_FALSE(complaint);
  EXPECT_EQ(read(std::nullopt, complaint), "");
  EXPECT_FALSE(complaint);
  for (const std::string& wrong : {std::string(), std::string("5a5a"), std::string(64, 'F'),
                                   std::string(33, '0'), std::string("correct horse")}) {
    EXPECT_EQ(read(wrong, complaint), "");
    ASSERT_TRUE(complaint) << wrong;
    EXPECT_EQ(
        *complaint,
        "MUSTER_WORKER_SECRET is not at least 32 hexadecimal digits, in pairs and lower case");
  }
}

}  // namespace
}  // namespace muster::worker
