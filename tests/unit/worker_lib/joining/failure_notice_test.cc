#include "worker_lib/joining/failure_notice.h"

#include <chrono>

#include <gtest/gtest.h>

#include "rendezvous/base/contract.h"
#include "rendezvous/store/store_client.h"
#include "tests/unit/rendezvous/backends/rendezvous_harness.h"
#include "tests/unit/rendezvous/store/store_server_harness.h"
#include "tests/wait_for.h"

namespace muster::worker {
namespace {

TEST(FailureNotice, ParsesItsFormatAndRefusesOtherText) {
  struct Case {
    const char* value;
    std::optional<Failure> failure;
  };
  const Case cases[] = {
      {"rank 3 on node7 exited with 1\nfailed 3",
       Failure{ErrorCode::peer_failed, "rank 3 on node7 exited with 1", {{3}}}},
      {"node7 was lost\nfailed", Failure{ErrorCode::peer_failed, "node7 was lost"}},
      {"node7 leaves\nstopped", Failure{ErrorCode::stopped, "node7 leaves"}},
      {"", std::nullopt},
      {"\nfailed 3", std::nullopt},
      {"no verdict", std::nullopt},
      {"text\nfailed -1", std::nullopt},
      {"text\nfailed 3x", std::nullopt},
      {"text\nfailed3", std::nullopt},
      {"text\nfailed 99999999999", std::nullopt},
      {"text\nsomething", std::nullopt},
  };
  for (const Case& one : cases)
    EXPECT_EQ(parse_failure_notice(one.value), one.failure) << one.value;
}

TEST(FailureNotice, IsFetchedFromTheStore) {
  store_test::RunningStore store;
  const auto ask = ask_agents_store("127.0.0.1", store.port(), std::chrono::seconds(20));
  store.with([](StoreServer& server) { server.put(kFailureNoticeKey, "node7 was lost\nfailed"); });
  EXPECT_EQ(ask(), (Failure{ErrorCode::peer_failed, "node7 was lost"}));
}

TEST(FailureNotice, TheQueryEndsSoonWithoutANotice) {
  store_test::RunningStore store;
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(ask_agents_store("127.0.0.1", store.port())(), std::nullopt);
  EXPECT_EQ(ask_agents_store("127.0.0.1", 1)(), std::nullopt);
  EXPECT_LT(std::chrono::steady_clock::now() - before,
            test::within(std::chrono::milliseconds(400)));
}

// ---- writing

std::optional<Failure> notice_at(const membership::Round& round) {
  Result<StoreClient> store =
      StoreClient::connect({round.master_addr, static_cast<uint16_t>(round.master_port)});
  const std::string key(kFailureNoticeKey);
  if (!store || !store->wait({key})) return std::nullopt;
  return parse_failure_notice(*store->get(key));
}

class Noticed : public testing::Test {
 protected:
  // Forms a round of two agents.
  void form(std::chrono::seconds lease = std::chrono::seconds(30)) {
    for (const char* name : {"first", "second"}) {
      RendezvousOptions options = endpoint_options(port_, 2, 2);
      options.join.host_name = name;
      options.join.lease = lease;
      options.is_host = agents_.empty();
      agents_.push_back(std::make_unique<TestAgent>(loop_, options));
      agents_.back()->meeting().tell(member::ReadyForRound{});
    }
    ASSERT_TRUE(all_have_rounds(loop_, agents_, 1));
  }

  boost::asio::io_context loop_;
  const int port_ = free_port();
  Agents agents_;
};

TEST_F(Noticed, AFailureIsInTheStoreBeforeTheOtherNodesStop) {
  form();
  const membership::Round& round = agents_[0]->rounds[0];
  TestAgent& other = *agents_[1];
  membership::NodeFailure failure;
  failure.rank = 0;
  failure.sentence = "exited with 3: ValueError: boom";
  agents_[0]->meeting().tell(member::WorkerFailed{round.epoch, failure});
  ASSERT_TRUE(other.wait_stops(1));
  const std::optional<Failure> notice = notice_at(round);
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(notice->code, ErrorCode::peer_failed);
  EXPECT_EQ(notice->ranks, std::vector<GlobalRank>{{0}});
  EXPECT_EQ(notice->message, other.stops[0].text);
  EXPECT_NE(notice->message.find("exited with 3: ValueError: boom"), std::string::npos);
}

TEST_F(Noticed, ALostNodeIsAFailure) {
  form(std::chrono::seconds(2));
  agents_[1]->kill();
  ASSERT_TRUE(agents_[0]->wait_end());
  const std::optional<Failure> notice = notice_at(agents_[0]->rounds[0]);
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(notice->code, ErrorCode::peer_failed);
  EXPECT_NE(notice->message.find("was lost"), std::string::npos) << notice->message;
}

TEST_F(Noticed, ANodeThatLeavesIsNoFailure) {
  form();
  agents_[1]->meeting().tell(member::Leaving{15});
  ASSERT_TRUE(run_until(loop_, [&] { return agents_[1]->leaves_announced > 0; }));
  const std::optional<Failure> notice = notice_at(agents_[0]->rounds[0]);
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(notice->code, ErrorCode::stopped);
  EXPECT_NE(notice->message.find("leaves (SIGTERM)"), std::string::npos) << notice->message;
}

}  // namespace
}  // namespace muster::worker
