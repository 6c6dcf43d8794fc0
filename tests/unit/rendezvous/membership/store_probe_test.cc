#include "rendezvous/membership/store_probe.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <gtest/gtest.h>

#include "rendezvous/membership/byte_stream.h"
#include "rendezvous/store/store_listener.h"
#include "rendezvous/store/store_server.h"
#include "tests/unit/rendezvous/net/socket_harness.h"

namespace muster {
namespace {

using namespace std::string_view_literals;

// VALIDATE with the magic, then PING with a nonce.
constexpr std::string_view kQuestion = "\x00\xce\xf7\x85\x3c\x0dRTSM"sv;

// A probe and a server that the test drives.
class StoreProbeTest : public testing::Test {
 protected:
  using Tcp = boost::asio::ip::tcp;

  void probe() {
    const SocketAddress server{IpAddress::loopback_v4(), acceptor_.local_endpoint().port()};
    probe_ = std::make_unique<StoreProbe>(loop_, server,
                                          [this](bool is_store) { outcomes_.push_back(is_store); });
  }
  void probe_until_asked() {
    acceptor_.async_accept([this](boost::system::error_code error, Tcp::socket socket) {
      ASSERT_FALSE(error);
      served_ = std::make_unique<ByteStream>(loop_, socket.release(), 4096);
      served_->start({[this](std::string_view bytes) { asked_ += bytes; },
                      [this](const std::string&) { hung_up_ = true; }});
    });
    probe();
    turn_until(loop_, [&] { return asked_.size() >= kQuestion.size(); }, "the question comes");
  }
  // Sends `answer` and returns the probe's outcomes.
  std::vector<bool> outcomes_after(std::string_view answer) {
    served_->write(answer);
    turn_until(loop_, [&] { return !outcomes_.empty() && hung_up_; }, "the probe is over");
    return outcomes_;
  }
  void settle() {
    loop_.restart();
    loop_.poll();
  }

  boost::asio::io_context loop_;
  Tcp::acceptor acceptor_{loop_, {boost::asio::ip::address_v4::loopback(), 0}};
  std::unique_ptr<ByteStream> served_;
  std::string asked_;
  bool hung_up_ = false;
  std::vector<bool> outcomes_;
  std::unique_ptr<StoreProbe> probe_;
};

const std::vector<bool> kIsStore = {true};
const std::vector<bool> kIsNone = {false};

TEST_F(StoreProbeTest, SendsOnlyTheQuestionOfAStoreClient) {
  EXPECT_EQ(store_question(), kQuestion);
  probe_until_asked();
  settle();
  EXPECT_EQ(asked_, kQuestion);
  EXPECT_TRUE(outcomes_.empty());
}

TEST_F(StoreProbeTest, RecognisesAStoreByItsNonceAndHangsUp) {
  probe_until_asked();
  EXPECT_EQ(outcomes_after("RTSM"), kIsStore);
  settle();
  EXPECT_EQ(outcomes_, kIsStore);
}

TEST_F(StoreProbeTest, RecognisesANonceInPiecesWithMoreBehindIt) {
  probe_until_asked();
  for (const std::string_view piece : {"R", "TS"}) {
    served_->write(piece);
    settle();
    EXPECT_TRUE(outcomes_.empty());
  }
  EXPECT_EQ(outcomes_after("M and more"), kIsStore);
}

TEST_F(StoreProbeTest, RejectsAnyOtherAnswer) {
  probe_until_asked();
  EXPECT_EQ(outcomes_after("MSTR"), kIsNone);
}

// A muster host hangs up like this.
TEST_F(StoreProbeTest, RejectsAServerThatHangsUp) {
  probe_until_asked();
  served_->finish();
  turn_until(loop_, [&] { return !outcomes_.empty(); }, "the probe is over");
  EXPECT_EQ(outcomes_, kIsNone);
}

TEST_F(StoreProbeTest, RejectsAPortThatRefuses) {
  const SocketAddress nobody =
      PlainSocket::bound_to({IpAddress::loopback_v4(), 0}, -1).own_address();
  probe_ = std::make_unique<StoreProbe>(loop_, nobody,
                                        [this](bool is_store) { outcomes_.push_back(is_store); });
  EXPECT_TRUE(outcomes_.empty());  // Never called inside the constructor.
  turn_until(loop_, [&] { return !outcomes_.empty(); }, "the probe is over");
  EXPECT_EQ(outcomes_, kIsNone);
}

TEST_F(StoreProbeTest, HangsUpSilentlyIfDestroyed) {
  probe_until_asked();
  served_->write("RTSM");
  probe_.reset();
  turn_until(loop_, [&] { return hung_up_; }, "the connection is closed");
  settle();
  EXPECT_TRUE(outcomes_.empty());
}

TEST_F(StoreProbeTest, LetsTheCallbackDestroyIt) {
  const SocketAddress nobody =
      PlainSocket::bound_to({IpAddress::loopback_v4(), 0}, -1).own_address();
  bool called = false;
  probe_ = std::make_unique<StoreProbe>(loop_, nobody, [&](bool) {
    probe_.reset();
    called = true;
  });
  turn_until(loop_, [&] { return called; }, "the probe is over");
  settle();
}

TEST_F(StoreProbeTest, RecognisesARunningStore) {
  StoreServer server(loop_, {});
  const auto listener =
      StoreListener::open(loop_, server, {SocketAddress{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(listener);
  server.open(1);
  probe_ = std::make_unique<StoreProbe>(
      loop_, SocketAddress{IpAddress::loopback_v4(), listener->front()->port()},
      [this](bool is_store) { outcomes_.push_back(is_store); });
  turn_until(loop_, [&] { return !outcomes_.empty(); }, "the probe is over");
  EXPECT_EQ(outcomes_, kIsStore);
}

}  // namespace
}  // namespace muster
