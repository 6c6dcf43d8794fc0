#include "rendezvous/membership/owner_questions.h"

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

using membership::ConnectionId;
using AgentCame = OwnerQuestions::AgentCame;
using Decided = OwnerQuestions::Decided;
using Say = OwnerQuestions::Say;
using Sight = OwnerQuestions::Sight;
using std::chrono::milliseconds;

const IpAddress kStoreHost = IpAddress::v4({10, 0, 0, 1});
const IpAddress kThere = IpAddress::v4({10, 0, 0, 2});
const IpAddress kElsewhere = IpAddress::v4({10, 0, 0, 3});
const SocketAddress kStorePlace{kStoreHost, 29400};
const std::string kStoreRefused = "refused a connection from 10.0.0.2 to the job's store: ";
const std::string kStoreRemedy = "; --store-allow 10.0.0.2 admits every user of that machine";
const std::string kDenied =
    kStoreRefused + "the agent of b says that it is of no user of the job there" + kStoreRemedy;
const std::string kSilent =
    kStoreRefused + "the agent of b did not say within 10 s who owns it" + kStoreRemedy;
const std::string kNobody =
    kStoreRefused + "none of the round's agents is there to say who owns it" + kStoreRemedy;

class OwnerQuestionsTest : public testing::Test {
 protected:
  using Effects = std::vector<OwnerQuestions::Effect>;

  Effects post(const OwnerQuestions::Event& event) {
    Effects effects;
    machine_.step(now_, event, effects);
    return effects;
  }
  Effects client(uint64_t number, const IpAddress& from = kThere) {
    return post(OwnerQuestions::ClientCame{number, {from, 40000}, kStorePlace});
  }
  Effects agent(ConnectionId connection, AgentCame came = {}) {
    members_.insert(connection);
    return other_agent(connection, std::move(came));
  }
  Effects other_agent(ConnectionId connection, AgentCame came = {}) {
    came.connection = connection;
    if (came.seen == IpAddress()) came.seen = kThere;
    came.host = "b";
    return post(came);
  }
  Effects answer(ConnectionId connection, uint64_t client, bool to_job) {
    return post(OwnerQuestions::Answered{connection, {client, to_job}});
  }
  Effects gone(ConnectionId connection) {
    members_.erase(connection);
    return post(OwnerQuestions::AgentGone{connection});
  }
  Effects wait(Duration time) {
    now_ += time;
    return post(OwnerQuestions::Tick{});
  }
  static OwnerQuestions::Ask ask(ConnectionId connection, uint64_t client,
                                 const std::string& from = "10.0.0.2") {
    return {connection, {client, from + ":40000", "10.0.0.1:29400"}};
  }

  std::set<ConnectionId> members_;
  OwnerQuestions machine_{[this](ConnectionId agent) { return members_.contains(agent); }};
  Instant now_{std::chrono::hours(1)};
};

TEST_F(OwnerQuestionsTest, AskTheAgentAtTheClientsAddressOnce) {
  EXPECT_EQ(agent(1), Effects{});
  EXPECT_EQ(agent(2, {.seen = kElsewhere}), Effects{});
  EXPECT_EQ(machine_.next_deadline(), kNever);
  EXPECT_EQ(client(7), Effects{ask(1, 7)});
  EXPECT_EQ(client(8), Effects{ask(1, 8)});
  EXPECT_EQ(machine_.next_deadline(), now_ + OwnerQuestions::kAnswerLimit);
  EXPECT_EQ(answer(1, 8, false), (Effects{Decided{8, false, kDenied}}));
  EXPECT_EQ(answer(1, 7, true), (Effects{Decided{7, true, ""}}));
  EXPECT_EQ(machine_.next_deadline(), kNever);
}

TEST_F(OwnerQuestionsTest, CountAnAnswerOnceAndOnlyFromAnAskedAgent) {
  agent(1);
  agent(2, {.seen = kElsewhere});
  client(7);
  EXPECT_EQ(answer(2, 7, true), Effects{}) << "that agent is at another address";
  EXPECT_EQ(answer(1, 6, true), Effects{}) << "no such client";
  EXPECT_EQ(answer(1, 7, false), (Effects{Decided{7, false, kDenied}}));
  EXPECT_EQ(answer(1, 7, true), Effects{});
}

TEST_F(OwnerQuestionsTest, AcceptTheYesOfAnyAgentAtTheAddress) {
  agent(1);
  agent(2);
  EXPECT_EQ(client(7), (Effects{ask(1, 7), ask(2, 7)}));
  EXPECT_EQ(answer(1, 7, false), Effects{});
  EXPECT_EQ(answer(2, 7, true), (Effects{Decided{7, true, ""}}));
  client(8);
  answer(1, 8, false);
  EXPECT_EQ(answer(2, 8, false), (Effects{Decided{8, false, kDenied}}));
  client(9);
  answer(1, 9, false);
  EXPECT_EQ(wait(OwnerQuestions::kAnswerLimit), (Effects{Decided{9, false, kDenied}}));
}

TEST_F(OwnerQuestionsTest, RefuseAClientWithoutAnAnswerInTime) {
  agent(1);
  client(7);
  now_ += milliseconds(400);
  client(8);
  client(9, kElsewhere);
  EXPECT_EQ(machine_.next_deadline(), now_ + OwnerQuestions::kReturnLimit)
      << "no agent is at that address";
  EXPECT_EQ(wait(OwnerQuestions::kReturnLimit).size(), 1u);
  now_ -= milliseconds(400) + OwnerQuestions::kReturnLimit;
  EXPECT_EQ(wait(OwnerQuestions::kAnswerLimit - milliseconds(1)), Effects{});
  EXPECT_EQ(wait(milliseconds(1)), (Effects{Decided{7, false, kSilent}}));
  EXPECT_EQ(machine_.next_deadline(), now_ + milliseconds(400));
  EXPECT_EQ(answer(1, 7, true), Effects{}) << "too late";
  EXPECT_EQ(answer(1, 8, true), (Effects{Decided{8, true, ""}}));
}

TEST_F(OwnerQuestionsTest, AskAnAgentThatReconnectsInTime) {
  agent(1);
  client(7);
  EXPECT_EQ(gone(1), Effects{});
  EXPECT_EQ(client(8), Effects{}) << "it may come back";
  EXPECT_EQ(other_agent(2), Effects{}) << "that agent is not in the round";
  EXPECT_EQ(agent(3), (Effects{ask(3, 7), ask(3, 8)}));
  EXPECT_EQ(answer(1, 7, true), Effects{}) << "that connection is gone";
  EXPECT_EQ(answer(3, 7, true), (Effects{Decided{7, true, ""}}));
  gone(3);
  EXPECT_EQ(wait(OwnerQuestions::kAnswerLimit), (Effects{Decided{8, false, kNobody}}));
}

// The client may belong to the user of the agent that is gone.
TEST_F(OwnerQuestionsTest, WaitForAnAgentThatMayReconnectDespiteANo) {
  agent(1);
  agent(2);
  client(7);
  gone(2);
  EXPECT_EQ(answer(1, 7, false), Effects{});
  EXPECT_EQ(agent(3), Effects{ask(3, 7)});
  EXPECT_EQ(answer(3, 7, true), (Effects{Decided{7, true, ""}}));
}

// The agent's node may be in the next round.
TEST_F(OwnerQuestionsTest, IgnoreAnAgentThatIsNotInTheRound) {
  other_agent(1);
  EXPECT_EQ(client(7), Effects{});
  EXPECT_EQ(wait(OwnerQuestions::kReturnLimit), (Effects{Decided{7, false, kNobody}}));
  members_ = {1};
  EXPECT_EQ(client(8), Effects{ask(1, 8)});
}

TEST_F(OwnerQuestionsTest, AdmitByAddressIfAnAgentCannotTellOwners) {
  agent(1, {.sight = Sight::translated});
  agent(2, {.seen = kElsewhere, .sight = Sight::blind});
  EXPECT_EQ(client(7),
            (Effects{Say{"every user of b (10.0.0.2) can use the job's store, as can those of any "
                         "other node from which addresses are translated on the way"},
                     Decided{7, true, ""}}));
  EXPECT_EQ(client(8), (Effects{Decided{8, true, ""}}));
  EXPECT_EQ(client(9, kElsewhere),
            (Effects{Say{"every user of b (10.0.0.3) can use the job's store, as can those of any "
                         "other node whose kernel does not show the owner of a connection"},
                     Decided{9, true, ""}}));
  agent(3);
  EXPECT_EQ(client(10), (Effects{Decided{10, true, ""}}))
      << "an agent that can tell sees only its own connections";
}

// Private addresses recur in many networks, so the seen address comes first.
TEST_F(OwnerQuestionsTest, AskAgentsThatAdvertiseTheAddressIfNoneIsSeenThere) {
  agent(1, {.seen = kElsewhere, .advertised = kThere});
  EXPECT_EQ(client(7), Effects{ask(1, 7)});
  EXPECT_EQ(client(8, kElsewhere), Effects{ask(1, 8, "10.0.0.3")});
  agent(2, {.advertised = kThere});
  EXPECT_EQ(client(9), Effects{ask(2, 9)});
}

TEST_F(OwnerQuestionsTest, BoundTheOpenQuestionsPerAddress) {
  agent(1);
  agent(2, {.seen = kElsewhere});
  for (uint64_t number = 1; number <= OwnerQuestions::kOpenMax; ++number)
    ASSERT_EQ(client(number), Effects{ask(1, number)});
  const uint64_t next = OwnerQuestions::kOpenMax + 1;
  const std::string crowd =
      kStoreRefused + "4096 others from there wait until it is known whose they are" + kStoreRemedy;
  EXPECT_EQ(client(next), (Effects{Decided{next, false, crowd}}));
  EXPECT_EQ(client(next + 1, kElsewhere), Effects{ask(2, next + 1, "10.0.0.3")});
  answer(1, 1, true);
  EXPECT_EQ(client(next + 2), Effects{ask(1, next + 2)});
}

TEST_F(OwnerQuestionsTest, EscapeNodeNames) {
  AgentCame came{1, kThere, {}, Sight::clear, "bad\nname"};
  members_ = {1};
  post(came);
  client(7);
  const Effects effects = answer(1, 7, false);
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_EQ(std::get<Decided>(effects[0]).text.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace muster
