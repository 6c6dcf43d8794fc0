#include "rendezvous/membership/client_check.h"

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/net/interfaces.h"
#include "rendezvous/net/listening_socket.h"
#include "tests/unit/rendezvous/net/socket_harness.h"
#include "tests/wait_for.h"

namespace muster {
namespace {

using testing::ElementsAre;

constexpr uid_t kStranger = 54321;

// A connection of another user's process to a listener of this process.
class ClientCheckTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
    auto listening = listen_on({{IpAddress::loopback_v4(), 0}});
    ASSERT_TRUE(listening.has_value());
    place_ = listening->front().address;
    stranger_.emplace(kStranger, place_);
    const auto has_come = [&] {
      server_ = UniqueFd(::accept4(listening->front().fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
      return static_cast<bool>(server_);
    };
    ASSERT_TRUE(test::wait_for(has_come, "the stranger's connection"));
    options_.local = std::make_shared<LocalUsers>();
    options_.users = [this] {
      ++asked_;
      return users_;
    };
  }

  std::function<void(const std::string&)> say() {
    return [this](const std::string& line) { said_.push_back(line); };
  }
  bool may_come(ClientCheck& check) const {
    return check.look(server_.get()) == ClientCheck::Verdict::may_come;
  }
  // Asks like a host that asks the agent of the client's machine.
  bool belongs(ClientCheck& check) const {
    return check.belongs(remote_address_of(server_.get()), place_);
  }

  ClientCheck::Options options_;
  std::set<uid_t> users_;
  int asked_ = 0;
  std::vector<std::string> said_;
  SocketAddress place_;
  UniqueFd server_;
  std::optional<OtherUser> stranger_;
};

TEST_F(ClientCheckTest, RefusesAnotherUserAndReportsItOnce) {
  ClientCheck check(options_, say());
  check.begin();
  EXPECT_FALSE(may_come(check));
  EXPECT_FALSE(may_come(check));
  EXPECT_THAT(said_, ElementsAre("refused a process of uid 54321 at the job's store: it is for uid "
                                 "0, root and the users that the job's processes run as; "
                                 "--store-allow 127.0.0.1 admits every user of this machine"));
  EXPECT_EQ(asked_, 1) << "the users are read at most once a second";
}

TEST_F(ClientCheckTest, AdmitsUsersOfTheJobsProcesses) {
  users_ = {kStranger};
  ClientCheck check(options_, say());
  check.begin();
  EXPECT_TRUE(may_come(check));
  EXPECT_THAT(said_, ElementsAre());
}

TEST_F(ClientCheckTest, DoesNotCheckAllowedNetworks) {
  options_.allow = {Network(IpAddress::loopback_v4(), 8)};
  ClientCheck some(options_, say());
  some.begin();
  EXPECT_TRUE(may_come(some));
  options_.allow.clear();
  options_.allow_any = true;
  ClientCheck any(options_, say());
  any.begin();
  EXPECT_TRUE(may_come(any));
}

TEST_F(ClientCheckTest, AdmitsUsersOfOtherAgents) {
  ClientCheck check(options_, say());
  check.begin();
  check.admit(kStranger);
  EXPECT_TRUE(may_come(check));
}

TEST_F(ClientCheckTest, KnowsWhetherAConnectionBelongsToTheJob) {
  ClientCheck check(options_, say());
  EXPECT_TRUE(check.knows_owners());
  EXPECT_FALSE(belongs(check));
  EXPECT_FALSE(check.belongs({IpAddress::loopback_v4(), 1}, place_)) << "no such connection";
  users_ = {kStranger};
  ClientCheck other(options_, say());
  EXPECT_TRUE(belongs(other));
  EXPECT_FALSE(belongs(check)) << "the same user, within a second";
  EXPECT_EQ(asked_, 2);
  options_.allow = {Network(IpAddress::loopback_v4(), 8)};
  ClientCheck some(options_, say());
  EXPECT_TRUE(belongs(some));
  EXPECT_THAT(said_, ElementsAre()) << "the host reports the refusal";
  options_ = {};
  ClientCheck none(options_, say());
  EXPECT_FALSE(none.knows_owners());
}

// The users are read again for another user, even within a second.
TEST_F(ClientCheckTest, DoesNotRefuseAUserBecauseAnotherWasRefused) {
  ClientCheck check(options_, say());
  check.begin();
  users_ = {1};
  EXPECT_FALSE(may_come(check));
  ClientCheck other(options_, say());
  other.begin();
  users_ = {kStranger};
  EXPECT_TRUE(may_come(other));
  EXPECT_FALSE(may_come(check)) << "the same user, within a second";
}

// A port probe connects and closes at once.
TEST_F(ClientCheckTest, RefusesAClosedConnectionWithoutAReport) {
  ClientCheck check(options_, say());
  check.begin();
  ASSERT_EQ(::shutdown(server_.get(), SHUT_WR), 0);
  EXPECT_FALSE(may_come(check));
  EXPECT_THAT(said_, ElementsAre());
}

}  // namespace
}  // namespace muster
