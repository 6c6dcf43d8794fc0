#include "rendezvous/backends/solo_rendezvous.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/rendezvous/net/addresses.h"
#include "tests/unit/rendezvous/net/socket_harness.h"

namespace muster {
namespace {

using membership::NodeLine;

// A single node on the test's loop, without the thread that make_rendezvous() adds.
class SoloRendezvousTest : public testing::Test {
 protected:
  SoloRendezvousTest() {
    options_.join.slots = 4;
    options_.join.host_name = "node0";
  }

  void make() {
    Rendezvous::Handlers on;
    on.round = [this](const membership::Round& round) { rounds_.push_back(round); };
    on.leave_announced = [this] { ++leaves_; };
    on.ended = [this](const membership::End& end) { ends_.push_back(end); };
    on.failed = [this](const Error& error) { errors_.push_back(error); };
    auto made = SoloRendezvous::make(loop_, options_, on);
    if (made) {
      solo_ = std::move(*made);
    } else {
      errors_.push_back(made.error());
    }
  }
  std::vector<NodeLine> nodes() {
    std::vector<NodeLine> nodes;
    solo_->nodes([&](std::vector<NodeLine> lines) { nodes = std::move(lines); });
    return nodes;
  }
  bool store_is_at(const std::string& address, int port) {
    return PlainSocket::connected_to({ip(address), static_cast<uint16_t>(port)}).fd() >= 0;
  }
  std::vector<membership::Epoch> epochs() const {
    std::vector<membership::Epoch> epochs;
    for (const membership::Round& round : rounds_)
      epochs.push_back(round.epoch);
    return epochs;
  }

  boost::asio::io_context loop_;
  RendezvousOptions options_;
  std::unique_ptr<Rendezvous> solo_;
  std::vector<membership::Round> rounds_;
  std::vector<membership::End> ends_;
  std::vector<Error> errors_;
  int leaves_ = 0;
};

TEST_F(SoloRendezvousTest, ContinuesFromAnEarlierAgentsEpochAndRestarts) {
  options_.join.last_epoch = 7;
  options_.join.restarts = 2;
  make();
  solo_->tell(member::ReadyForRound{});
  ASSERT_EQ(epochs(), std::vector<membership::Epoch>{8});
  EXPECT_EQ(rounds_[0].restarts, 2);
  EXPECT_EQ(rounds_[0].world_size, 4);
  EXPECT_EQ(rounds_[0].role_world_size, 4);
}

TEST_F(SoloRendezvousTest, CountsARepeatedFailureAsOneRestart) {
  make();
  solo_->tell(member::ReadyForRound{});
  solo_->tell(member::WorkerFailed{1, {}});
  solo_->tell(member::WorkerFailed{1, {}});
  solo_->tell(member::ReadyForRound{});
  solo_->tell(member::ReadyForRound{});  // The second round ends without a failure.
  ASSERT_EQ(epochs(), (std::vector<membership::Epoch>{1, 2, 3}));
  EXPECT_EQ(rounds_[1].restarts, 1);
  EXPECT_EQ(rounds_[2].restarts, 1);
}

TEST_F(SoloRendezvousTest, IgnoresUpdatesOfEarlierRounds) {
  make();
  solo_->tell(member::WorkerFailed{0, {}});
  solo_->tell(member::WorkersDone{0});
  solo_->tell(member::ReadyForRound{});
  solo_->tell(member::ReadyForRound{});
  solo_->tell(member::WorkerFailed{1, {}});
  solo_->tell(member::WorkersDone{1});
  EXPECT_TRUE(ends_.empty());
  solo_->tell(member::ReadyForRound{});
  EXPECT_EQ(rounds_[2].restarts, 0);
}

TEST_F(SoloRendezvousTest, EndsTheJobOnceWithItsStore) {
  make();
  solo_->tell(member::ReadyForRound{});
  solo_->tell(member::WorkerFailed{1, {}});
  solo_->tell(member::ReadyForRound{});
  solo_->tell(member::WorkersDone{2});
  solo_->tell(member::WorkersDone{2});
  membership::End expected;
  expected.text = "all workers succeeded";
  expected.restarts = 1;
  EXPECT_EQ(ends_, std::vector<membership::End>{expected});
  EXPECT_FALSE(store_is_at("127.0.0.1", rounds_[1].master_port));
}

TEST_F(SoloRendezvousTest, KeepsTheStoreUntilALeavingNodesWorkersAreReaped) {
  make();
  solo_->tell(member::ReadyForRound{});
  solo_->tell(member::Leaving{15, false});
  EXPECT_TRUE(store_is_at("127.0.0.1", rounds_[0].master_port));
  solo_->tell(member::Leaving{15, true});
  EXPECT_FALSE(store_is_at("127.0.0.1", rounds_[0].master_port));
  EXPECT_EQ(leaves_, 1);
  solo_->tell(member::ReadyForRound{});
  EXPECT_EQ(rounds_.size(), 1u);
}

TEST_F(SoloRendezvousTest, FormsNoRoundAfterClose) {
  make();
  solo_->tell(member::ReadyForRound{});
  int closed = 0;
  solo_->close([&] { ++closed; });
  EXPECT_EQ(closed, 1);
  EXPECT_FALSE(store_is_at("127.0.0.1", rounds_[0].master_port));
  solo_->tell(member::ReadyForRound{});
  EXPECT_EQ(rounds_.size(), 1u);
}

TEST_F(SoloRendezvousTest, ReportsItsStatusAndNode) {
  make();
  EXPECT_EQ(solo_->status(), "one node alone; no round runs");
  EXPECT_EQ(nodes(), (std::vector<NodeLine>{{-1, "node0", 0, 4, "between two rounds"}}));
  solo_->tell(member::ReadyForRound{});
  EXPECT_TRUE(solo_->status().starts_with("epoch 1 runs on this node alone; store of epoch 1: "))
      << solo_->status();
  EXPECT_EQ(nodes(), (std::vector<NodeLine>{{0, "node0", 0, 4, "running"}}));
  solo_->tell(member::Leaving{2, false});
  EXPECT_EQ(nodes(), (std::vector<NodeLine>{{0, "node0", 0, 4, "leaving"}}));
  solo_->tell(member::Leaving{2, true});
  EXPECT_EQ(nodes(), (std::vector<NodeLine>{{-1, "node0", 0, 4, "leaving"}}));
  EXPECT_EQ(solo_->address_towards_peers(), "");
}

TEST_F(SoloRendezvousTest, ListensWhereTheStoresNameLeads) {
  struct Case {
    std::string host;
    std::string master_addr;
    std::string store;
  };
  const std::vector<Case> cases = {{"", "127.0.0.1", "127.0.0.1"},
                                   {"localhost", "localhost", "127.0.0.1"},
                                   {"127.0.0.5", "127.0.0.5", "127.0.0.5"},
                                   {"0.0.0.0", "127.0.0.1", "127.0.0.1"},
                                   {"some-name.invalid", "some-name.invalid", "127.0.0.1"}};
  for (const Case& one : cases) {
    options_.host = one.host;
    rounds_.clear();
    make();
    ASSERT_TRUE(errors_.empty()) << errors_[0].message;
    solo_->tell(member::ReadyForRound{});
    ASSERT_EQ(rounds_.size(), 1u);
    EXPECT_EQ(rounds_[0].master_addr, one.master_addr) << one.host;
    EXPECT_TRUE(store_is_at(one.store, rounds_[0].master_port)) << one.host;
  }
}

TEST_F(SoloRendezvousTest, ListensOnlyOnLoopbackForLocalhost) {
  options_.host = "localhost";
  make();
  solo_->tell(member::ReadyForRound{});
  ASSERT_EQ(rounds_.size(), 1u);
  EXPECT_FALSE(store_is_at("127.0.0.9", rounds_[0].master_port));
}

TEST_F(SoloRendezvousTest, RefusesAForeignAddressAtOnceIfItsPortIsFixed) {
  options_.host = "192.0.2.1";  // Reserved for documentation.
  options_.worker_port = 29500;
  make();
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_EQ(errors_[0].code, ExitCode::environment);
  EXPECT_NE(errors_[0].message.find("192.0.2.1:29500"), std::string::npos) << errors_[0].message;
}

TEST_F(SoloRendezvousTest, FailsTheFirstRoundAtAForeignAddressWithAnyPort) {
  options_.host = "192.0.2.1";
  make();
  ASSERT_TRUE(errors_.empty());
  solo_->tell(member::ReadyForRound{});
  EXPECT_TRUE(rounds_.empty());
  EXPECT_EQ(errors_.size(), 1u);
}

}  // namespace
}  // namespace muster
