#include "rendezvous/membership/agent_session.h"

#include <utility>
#include <variant>

#include <fmt/format.h>
#include <unistd.h>

#include "rendezvous/membership/job_token.h"
#include "rendezvous/membership/membership_text.h"
#include "rendezvous/membership/random_ids.h"
#include "rendezvous/net/interfaces.h"
#include "rendezvous/net/local_users.h"

namespace muster {

using membership::AgentMessage;
using membership::Challenge;
using membership::Hello;
using membership::HostMessage;
using membership::Join;
using membership::RefusalKind;
using membership::Refused;
using membership::Welcome;

namespace {

constexpr std::string_view kSeedLabel = "muster worker seed 1";

}  // namespace

AgentSession::AgentSession(boost::asio::io_context& io, Arrival arrival, Options options)
    : options_(std::move(options)),
      peer_(arrival.peer),
      host_end_(local_address_of(arrival.fd.get())),
      early_(std::move(arrival.bytes)),
      stream_(io, arrival.fd.release(), options_.unsent_bytes_max),
      place_(std::move(arrival.place)),
      half_open_(std::move(arrival.half_open)) {}

void AgentSession::start(Handlers handlers) {
  const auto self = shared_from_this();
  handlers_ = std::move(handlers);
  const std::weak_ptr<AgentSession> weak = self;
  stream_.start({[weak](std::string_view bytes) {
                   if (const auto session = weak.lock()) session->on_bytes(bytes);
                 },
                 [weak](const std::string& why) {
                   if (const auto session = weak.lock()) session->on_closed(why, false);
                 }});
  const std::string early = std::exchange(early_, {});
  on_bytes(std::string_view(early).substr(membership::kMagic.size()));
}

void AgentSession::send(const HostMessage& message) {
  std::string bytes;
  if (const auto* plain = std::get_if<Welcome>(&message)) {
    Welcome welcome = *plain;
    welcome.host_instance = options_.host_instance;
    welcome.worker_seed = mac_of(options_.host_secret, {kSeedLabel, hello_.job_id});
    membership::encode(HostMessage(welcome), bytes);
  } else {
    membership::encode(message, bytes);
  }
  if (seal_ && is_joined()) seal_->close(bytes);
  stream_.write(bytes);
}

void AgentSession::refuse(RefusalKind kind, std::string text) {
  send(Refused{kind, text});
  stream_.finish();
  on_closed(text, true);
}

void AgentSession::finish() {
  step_ = Step::over;
  handlers_ = {};
  stream_.finish();
}

void AgentSession::on_bytes(std::string_view bytes) {
  const auto self = shared_from_this();
  reader_.feed(bytes);
  while (step_ != Step::over) {
    const Result<std::optional<AgentMessage>> message = reader_.next();
    if (!message) return on_bad_frame(message.error().message);
    if (!*message) return;
    on_message(**message);
  }
}

void AgentSession::on_bad_frame(const std::string& why) {
  if (step_ == Step::join && reader_.is_seal_broken()) {
    return refuse(RefusalKind::token,
                  "the job token of this node is not the host's: give all nodes the same "
                  "--rdzv-token-file or MUSTER_TOKEN");
  }
  stream_.close();
  on_closed(why, false);
}

void AgentSession::on_message(const AgentMessage& message) {
  if (step_ == Step::joined && !std::holds_alternative<Hello>(message) &&
      !std::holds_alternative<Join>(message)) {
    const Handlers held = handlers_;
    return held.message(message);
  }
  if (const auto* hello = std::get_if<Hello>(&message); hello && step_ == Step::hello)
    return on_hello(*hello);
  if (const auto* join = std::get_if<Join>(&message); join && step_ == Step::join)
    return on_join(*join);
  stream_.close();
  on_closed("it sent an unexpected message", false);
}

void AgentSession::on_hello(const Hello& hello) {
  if (hello.version != membership::kProtocolVersion) {
    return refuse(
        RefusalKind::version,
        fmt::format("this node's muster speaks version {} of the rendezvous protocol, the "
                    "host's version {}: install the same muster on all nodes",
                    hello.version, membership::kProtocolVersion));
  }
  if ((options_.only_own_job || hello.only_this_job) && hello.job_id != options_.job_id) {
    stream_.close();
    return on_closed("it belongs to another job", false);
  }
  hello_ = hello;
  if (!options_.foreign_user.empty()) {
    return refuse(RefusalKind::contradiction,
                  membership::users_differ_text("this endpoint", user_text(::geteuid()),
                                                options_.foreign_user));
  }
  const membership::Nonce nonce = random_nonce();
  if (!options_.token.empty()) {
    const membership::FrameSeals seals =
        membership::frame_seals(options_.token, hello.job_id, hello.nonce, nonce);
    reader_.expect(seals.agent);
    seal_ = seals.host;
  }
  step_ = Step::join;
  send(Challenge{nonce, !options_.token.empty()});
}

void AgentSession::on_join(const Join& join) {
  step_ = Step::joined;
  reader_.allow_frames_of(membership::kFrameBytesMax);
  const Handlers held = handlers_;
  held.joined(join);
}

void AgentSession::on_closed(const std::string& why, bool refused) {
  if (step_ == Step::over) return;
  step_ = Step::over;
  const Handlers held = std::exchange(handlers_, {});
  if (held.closed) held.closed(why, refused);
}

}  // namespace muster
