#include "rendezvous/membership/byte_stream.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/unit/rendezvous/net/socket_harness.h"

namespace muster {
namespace {

// A stream with a plain socket as its peer.
class ByteStreamTest : public testing::Test {
 protected:
  explicit ByteStreamTest(size_t unsent_bytes_max = size_t{1} << 20) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    fd_ = ends[0];
    peer_ = std::make_unique<PlainSocket>(ends[1]);
    stream_ = std::make_unique<ByteStream>(loop_, ends[0], unsent_bytes_max);
  }

  void start() {
    stream_->start({[this](std::string_view bytes) { received_ += bytes; },
                    [this](const std::string& why) { ends_.push_back(why); }});
  }
  void turn(const std::function<bool()>& done, const char* what) { turn_until(loop_, done, what); }
  // Runs all handlers that are ready.
  void settle() {
    loop_.restart();
    loop_.poll();
  }
  // Returns all bytes that the peer gets until the end of the stream.
  std::string all_that_arrives() {
    std::string all;
    for (std::string some = peer_->receive(); !some.empty(); some = peer_->receive()) {
      all += some;
      settle();
    }
    return all;
  }

  boost::asio::io_context loop_;
  int fd_ = -1;
  std::unique_ptr<PlainSocket> peer_;
  std::unique_ptr<ByteStream> stream_;
  std::string received_;
  std::vector<std::string> ends_;
};

const std::vector<std::string> kClosedByPeer = {"the other side closed the connection"};

TEST_F(ByteStreamTest, DeliversBytesAndReportsTheEndOnce) {
  start();
  peer_->send_text("hello");
  turn([&] { return received_ == "hello"; }, "the first bytes arrive");
  peer_->send_text(" world");
  peer_.reset();
  turn([&] { return !ends_.empty(); }, "the end arrives");
  EXPECT_EQ(received_, "hello world");
  settle();
  EXPECT_EQ(ends_, kClosedByPeer);
}

TEST_F(ByteStreamTest, SendsInsideWriteWhatTheSocketTakes) {
  start();
  stream_->write("one ");
  stream_->write("two");
  EXPECT_EQ(peer_->receive(), "one two");
}

TEST_F(ByteStreamTest, MakesABlockingSocketNonBlocking) {
  EXPECT_TRUE(fcntl(fd_, F_GETFL) & O_NONBLOCK);
}

TEST_F(ByteStreamTest, SendsBufferedBytesLaterInOrder) {
  start();
  std::string sent;
  for (int i = 0; i < 60; ++i) {
    const std::string part(size_t{16} << 10, static_cast<char>('A' + i));
    stream_->write(part);
    sent += part;
  }
  stream_->finish();
  EXPECT_EQ(all_that_arrives(), sent);
}

TEST_F(ByteStreamTest, DropsASlowPeerAtTheLimitOnceAndNotInsideWrite) {
  start();
  const std::string part(size_t{64} << 10, 'x');
  for (int i = 0; i < 64; ++i)
    stream_->write(part);
  EXPECT_EQ(ends_.size(), 0u);
  settle();
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_TRUE(ends_[0].starts_with("it does not read what is sent to it (")) << ends_[0];
  EXPECT_TRUE(ends_[0].ends_with(" bytes are waiting)")) << ends_[0];
}

class SmallByteStreamTest : public ByteStreamTest {
 protected:
  SmallByteStreamTest() : ByteStreamTest(1000) {}
};

TEST_F(SmallByteStreamTest, SendsExactlyTheLimit) {
  start();
  const std::string most(1000, 'x');
  stream_->write(most);
  EXPECT_EQ(peer_->receive(), most);
  stream_->write(most);  // Bytes already sent do not count.
  EXPECT_EQ(peer_->receive(), most);
  stream_->write(most + "x");
  settle();
  EXPECT_EQ(ends_,
            std::vector<std::string>{"it does not read what is sent to it (0 bytes are waiting)"});
}

TEST_F(ByteStreamTest, CountsUnsentBytes) {
  start();
  EXPECT_EQ(stream_->unsent(), 0u);
  const std::string large(size_t{1} << 20, 'x');  // More than the socket takes.
  stream_->write(large);
  const size_t waits = stream_->unsent();
  EXPECT_GT(waits, 0u);
  EXPECT_LT(waits, large.size());
  stream_->write("more");
  EXPECT_EQ(stream_->unsent(), waits + 4);
  while (stream_->unsent() > 0) {
    ASSERT_NE(peer_->receive(), "");
    settle();
  }
}

TEST_F(SmallByteStreamTest, SendsNothingAfterADroppedWrite) {
  start();
  stream_->write("first ");
  stream_->write(std::string(1001, 'x'));
  stream_->write("third");
  settle();
  EXPECT_EQ(peer_->receive(), "first ");
}

TEST_F(ByteStreamTest, ReportsAFailedWriteFromTheLoop) {
  start();
  peer_.reset();
  stream_->write("x");  // Raises no SIGPIPE.
  EXPECT_EQ(ends_.size(), 0u);
  settle();
  EXPECT_EQ(ends_.size(), 1u);
}

TEST_F(ByteStreamTest, NeitherSendsNorDeliversAfterClose) {
  start();
  peer_->send_text("too late");
  stream_->close();
  stream_->write("never sent");
  stream_->close();
  settle();
  EXPECT_EQ(received_, "");
  EXPECT_EQ(ends_.size(), 0u);
  EXPECT_EQ(peer_->receive(), "");
}

TEST_F(ByteStreamTest, CallsNoHandlerAfterDestruction) {
  start();
  peer_->send_text("x");
  const std::string part(size_t{2} << 20, 'x');
  stream_->write(part);  // Beyond the limit: the loop would report it.
  stream_.reset();
  settle();
  EXPECT_EQ(received_, "");
  EXPECT_EQ(ends_.size(), 0u);
}

TEST_F(ByteStreamTest, LetsADataHandlerDestroyIt) {
  const auto alive = std::make_shared<int>(7);
  const std::weak_ptr<int> watched = alive;
  int calls = 0;
  stream_->start({[this, &calls, held = alive](std::string_view) {
                    stream_.reset();
                    calls += *held;  // The handler's captures outlive the call.
                  },
                  [this](const std::string& why) { ends_.push_back(why); }});
  peer_->send_text("x");
  turn([&] { return stream_ == nullptr; }, "the handler is called");
  peer_.reset();
  settle();
  EXPECT_EQ(calls, 7);
  EXPECT_EQ(ends_.size(), 0u);
  EXPECT_EQ(watched.use_count(), 1);
}

TEST_F(ByteStreamTest, LetsTheEndHandlerDestroyIt) {
  stream_->start({[](std::string_view) {},
                  [this](const std::string& why) {
                    stream_.reset();
                    ends_.push_back(why);
                  }});
  peer_.reset();
  turn([&] { return stream_ == nullptr; }, "the end arrives");
  EXPECT_EQ(ends_, kClosedByPeer);
}

TEST_F(ByteStreamTest, SendsBufferedBytesAfterFinishAndDestruction) {
  start();
  const std::string sent(size_t{1} << 20, 'y');
  stream_->write(sent);
  stream_->finish();
  stream_->write("not this");
  stream_->finish();
  stream_.reset();
  EXPECT_EQ(all_that_arrives(), sent);
  EXPECT_EQ(ends_.size(), 0u);
}

TEST_F(ByteStreamTest, ReadsNothingAfterFinish) {
  start();
  peer_->send_text("too late");
  stream_->write(std::string(size_t{1} << 20, 'y'));
  stream_->finish();
  settle();
  EXPECT_EQ(received_, "");
}

TEST_F(ByteStreamTest, ClosesAtOnceInFinishIfNothingIsUnsent) {
  start();
  stream_->finish();
  EXPECT_EQ(peer_->receive(), "");
}

}  // namespace
}  // namespace muster
