// The host's end of one agent's connection: the handshake (Hello, Challenge, Join), then whole
// messages in both directions, sealed where there is a token. Knows nothing of jobs: peers that
// prove the token are handed on, all others are refused or disconnected here. One thread: the
// loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>

#include "rendezvous/membership/agent_protocol.h"
#include "rendezvous/membership/byte_stream.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/listener.h"

namespace muster {

class AgentSession : public std::enable_shared_from_this<AgentSession> {
 public:
  struct Options {
    std::string token;
    uint64_t host_instance = 0;
    std::string host_secret;    // Of this host alone; each job's workers get a secret made from it.
    std::string job_id;         // Of the host's own node.
    bool only_own_job = false;  // Serves that one and no other.
    std::string foreign_user;   // "uid 7": the other end's, who must not join; empty: it may.
    size_t unsent_bytes_max = 0;
  };
  struct Handlers {
    std::function<void(const membership::Join&)> joined;  // Authenticated.
    std::function<void(const membership::AgentMessage&)> message;
    // The connection is gone. `refused`: by us, in the handshake.
    std::function<void(const std::string& why, bool refused)> closed;
  };

  AgentSession(boost::asio::io_context& io, Arrival arrival, Options options);

  // Handlers may be called from inside this.
  void start(Handlers handlers);
  // A Welcome gets the host's instance and the job's seed.
  void send(const membership::HostMessage& message);
  void refuse(membership::RefusalKind kind, std::string text);
  // Closes after all earlier sends; no handler is called any more.
  void finish();

  size_t unsent() const { return stream_.unsent(); }
  bool is_joined() const { return step_ == Step::joined; }
  // Whether it ended because somebody on the path meddled with it. Of an agent that had joined.
  bool is_seal_broken() const { return reader_.is_seal_broken(); }
  const std::string& job_id() const { return hello_.job_id; }
  const IpAddress& peer() const { return peer_.ip; }
  const SocketAddress& agent_end() const { return peer_; }
  const SocketAddress& host_end() const { return host_end_; }

 private:
  enum class Step { hello, join, joined, over };

  void on_bytes(std::string_view bytes);
  void on_bad_frame(const std::string& why);
  void on_message(const membership::AgentMessage& message);
  void on_hello(const membership::Hello& hello);
  void on_join(const membership::Join& join);
  void on_closed(const std::string& why, bool refused);

  Options options_;
  SocketAddress peer_;
  SocketAddress host_end_;
  std::string early_;  // Bytes that came with the arrival.
  ByteStream stream_;
  Place place_;  // See Arrival.
  std::shared_ptr<void> half_open_;
  Handlers handlers_;
  Step step_ = Step::hello;
  membership::FrameReader<membership::AgentMessage> reader_{membership::kStrangerFrameBytesMax};
  membership::Hello hello_;
  std::optional<membership::FrameSeal> seal_;  // Of what is sent, once the agent has joined.
};

}  // namespace muster
