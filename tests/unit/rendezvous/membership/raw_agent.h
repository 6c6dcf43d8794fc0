// A hand-driven connection for tests of the agents' protocol: sends any bytes and reads the other
// side's messages, on the test's loop.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <arpa/inet.h>
#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/membership/agent_protocol.h"
#include "rendezvous/membership/byte_stream.h"
#include "rendezvous/membership/frame_seal.h"
#include "rendezvous/membership/job_token.h"
#include "rendezvous/membership/random_ids.h"
#include "tests/unit/rendezvous/backends/rendezvous_harness.h"

namespace muster {

template <typename Message>
std::string bytes_of(const Message& message) {
  std::string bytes;
  membership::encode(message, bytes);
  return bytes;
}

class RawAgent {
 public:
  RawAgent(boost::asio::io_context& loop, int port) : loop_(loop) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    stream_ = std::make_unique<ByteStream>(loop, fd, size_t{64} << 20);
    stream_->start({[this](std::string_view bytes) { on_bytes(bytes); },
                    [this](const std::string&) { closed = true; }});
  }

  void send(std::string_view bytes) { stream_->write(bytes); }
  // Seals later messages as an agent with the token does.
  void seal(const membership::FrameSeals& seals) {
    seal_ = seals.agent;
    reader_.expect(seals.host);
  }
  void send(const membership::AgentMessage& message) {
    std::string bytes = bytes_of(message);
    if (seal_) seal_->close(bytes);
    stream_->write(bytes);
  }
  void hello(const membership::Hello& hello) {
    send(membership::kMagic);
    send(membership::AgentMessage(hello));
  }
  // Performs the handshake; the last message is then the host's answer to `join`.
  bool join(const membership::Join& join, const std::string& job = "job") {
    hello({membership::kProtocolVersion, job, random_nonce()});
    if (!wait_messages(1)) return false;
    send(membership::AgentMessage(join));
    return wait_messages(2);
  }
  bool wait_messages(size_t count) {
    return run_until(loop_, [&] { return messages.size() >= count || closed; }) &&
           messages.size() >= count;
  }
  bool wait_closed() {
    return run_until(loop_, [&] { return closed; });
  }
  // Returns the last message; fails the test if it is of another kind.
  template <typename Kind>
  Kind last() const {
    const Kind* message = messages.empty() ? nullptr : std::get_if<Kind>(&messages.back());
    EXPECT_NE(message, nullptr);
    return message == nullptr ? Kind() : *message;
  }

  std::vector<membership::HostMessage> messages;
  std::string received;  // All bytes received.
  bool closed = false;

 private:
  void on_bytes(std::string_view bytes) {
    received += bytes;
    reader_.feed(bytes);
    while (true) {
      const auto message = reader_.next();
      if (!message || !*message) return;
      messages.push_back(**message);
    }
  }

  boost::asio::io_context& loop_;
  membership::FrameReader<membership::HostMessage> reader_;
  std::unique_ptr<ByteStream> stream_;
  std::optional<membership::FrameSeal> seal_;
};

}  // namespace muster
