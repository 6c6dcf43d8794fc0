// The shell of an agent's side: connects to the host, proves the job's token and has the host prove
// it, seals and checks every frame with it, and performs what the Member machine decides. A Dialler
// (an endpoint, a file) finds and reaches the host; this class checks that a muster host answers,
// and identifies anything else. One thread: the loop's; handlers are called from it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <tl/expected.hpp>

#include "rendezvous/base/error.h"
#include "rendezvous/base/steady_now.h"
#include "rendezvous/membership/agent_protocol.h"
#include "rendezvous/membership/client_check.h"
#include "rendezvous/membership/member.h"
#include "rendezvous/membership/stranger_watch.h"
#include "rendezvous/net/connect.h"
#include "rendezvous/net/drive.h"
#include "rendezvous/net/local_users.h"

namespace muster {

struct Dialled {
  TcpSocket socket;
  std::optional<uint64_t> host_instance;  // The only acceptable host.
  bool own_host = false;                  // The host is in this process.
};
using DialOutcome = tl::expected<Dialled, member::ConnectionFailed>;

// One way to reach the host.
class Dialler {
 public:
  virtual ~Dialler() = default;
  // Calls back once, from the loop and never from inside this call, unless cancelled before.
  // `reaped`: nothing of a round is alive on this node, so it might take a dead host's place.
  virtual void dial(bool reaped, std::function<void(DialOutcome)> done) = 0;
  virtual void cancel() = 0;
  // Each says how the last dial went wrong. What answered is not the intended host.
  virtual void answered_by_another() {}
  // The peer hung up: a forwarder to a host that is gone, or a full host. Or another on the way
  // answered, although a host has proved itself before.
  virtual void hung_up() { answered_by_another(); }
  // The peer accepted, but did not finish the handshake in time.
  virtual void silent() {}
};

class MemberClient {
 public:
  struct Options {
    Member::Options member;
    std::string job_id;
    // The job has a host of its own, at one of several ports: anything else there is skipped.
    bool only_this_job = false;
    std::string token;
    std::string advertised;        // Empty: our end of the connection.
    ClientCheck::Options clients;  // Which users here may use the store.
    Duration handshake_limit = std::chrono::seconds(5);
    size_t unsent_bytes_max = size_t{4} << 20;
  };
  using Handlers = member::Handlers;

  // `dialler` is borrowed and must outlive this object.
  MemberClient(boost::asio::io_context& io, Dialler& dialler, Options options, Handlers handlers);
  MemberClient(MemberClient&&) = delete;
  ~MemberClient();

  // Begin, ReadyForRound, WorkersDone, WorkerFailed, EvidenceFound, Testified, Leaving.
  void post(Member::Event event) { drive_.post(std::move(event)); }
  // Nothing more will be sent or handled.
  bool is_over() const { return machine_.over(); }
  std::string status() const { return machine_.status(steady_now()); }
  // Our end of the newest connection, whatever is advertised. Empty before the first.
  const std::string& own_address() const { return own_address_; }
  // Asks the host for all nodes of the job. Calls back once, from the loop, within a second, with
  // an empty list if there is no contact; not at all after the destructor.
  void nodes(std::function<void(std::vector<membership::NodeLine>)> done);
  // Sends to other nodes of the epoch; `at` is in our own clock. Dropped without contact, before
  // the host's clock is known, or if too much waits to be sent.
  void send(membership::Datagram datagram);

 private:
  // One connection, from dialling to its end.
  struct Link;
  // Callers that ask while an answer is pending share it.
  struct Question {
    uint64_t id = 0;
    std::vector<membership::NodeLine> lines;
    std::vector<std::function<void(std::vector<membership::NodeLine>)>> askers;
  };

  template <typename Call>
  auto while_linked(Call call);
  void perform(const Member::Effect& effect);
  void connect(membership::Join join);
  void on_dialled(DialOutcome outcome);
  void on_bytes(std::string_view bytes);
  void on_message(const membership::HostMessage& message);
  void on_other_host(const membership::Refused& refused);
  void on_challenge(const membership::Challenge& challenge);
  // Returns the host's user; nullopt: it does not matter.
  std::optional<LocalUsers::Found> whose_host() const;
  void on_welcome(const membership::Welcome& welcome);
  void on_broken_seal();
  void on_unproven_refusal(const membership::Refused& refused);
  void on_verdict(const membership::HostMessage& message);
  void on_nodes(const membership::Nodes& part);
  void on_delivered(const membership::Delivered& message);
  SocketAddress as_seen_here(const SocketAddress& end) const;
  void on_whose_is(const membership::WhoseIs& question);
  void write(const membership::AgentMessage& message);
  bool is_joined() const;
  void ask();
  void answer_askers();
  void forget_question();
  void on_closed(const std::string& why);
  void on_handshake_limit();
  void on_silence();
  void on_hangup();
  void ask_for_store(std::function<void(bool)> answered);
  void on_stranger(member::ConnectionFailed failure);
  void fail_link(member::ConnectionFailed failure);

  boost::asio::io_context& io_;
  Dialler& dialler_;
  Options options_;
  Handlers handlers_;
  ClientCheck clients_;
  StrangerWatch stranger_;
  Member machine_;
  Drive<Member, member::Tick> drive_;
  std::shared_ptr<Link> link_;  // Null while there is no connection.
  std::string own_address_;
  Mac worker_secret_{};           // The newest Welcome's.
  bool host_has_proved_ = false;  // A host has proved that it knows the token.
  bool other_host_said_ = false;
  bool meddling_said_ = false;
  Question question_;  // Not pending without askers.
  boost::asio::steady_timer question_limit_;
};

}  // namespace muster
