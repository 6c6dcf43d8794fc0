// The host's end of one agent's connection: the handshake (Hello, Challenge, Join), then whole
// messages in both directions, sealed if there is a token. Knows no jobs: hands on peers that prove
// the token, refuses or disconnects all others. One thread: the loop's.
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
    std::string host_secret;    // Known to this host alone; each job's worker seed is made from it.
    std::string job_id;         // The host's own job.
    bool only_own_job = false;  // Serves no other job.
    std::string foreign_user;   // "uid 7": the peer's user, if it must not join; else empty.
    size_t unsent_bytes_max = 0;
  };
  struct Handlers {
    std::function<void(const membership::Join&)> joined;  // The agent is authenticated.
    std::function<void(const membership::AgentMessage&)> message;
    // The connection is gone. `refused`: we refused it in the handshake.
    std::function<void(const std::string& why, bool refused)> closed;
  };

  AgentSession(boost::asio::io_context& io, Arrival arrival, Options options);

  // Handlers may be called from inside this.
  void start(Handlers handlers);
  // Fills in a Welcome's host instance and worker seed.
  void send(const membership::HostMessage& message);
  void refuse(membership::RefusalKind kind, std::string text);
  // Closes after all earlier sends; no handler is called any more.
  void finish();

  size_t unsent() const { return stream_.unsent(); }
  bool is_joined() const { return step_ == Step::joined; }
  // True if a wrong seal ended it: if the agent had joined, frames were tampered with on the way.
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
  std::optional<membership::FrameSeal> seal_;  // Seals what is sent once the agent has joined.
};

}  // namespace muster
