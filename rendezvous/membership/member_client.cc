#include "rendezvous/membership/member_client.h"

#include <algorithm>
#include <chrono>
#include <variant>

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "rendezvous/base/text.h"
#include "rendezvous/membership/byte_stream.h"
#include "rendezvous/membership/frame_seal.h"
#include "rendezvous/membership/job_token.h"
#include "rendezvous/membership/membership_text.h"
#include "rendezvous/membership/random_ids.h"
#include "rendezvous/membership/store_probe.h"
#include "rendezvous/net/call_after.h"
#include "rendezvous/net/interfaces.h"

namespace muster {

using membership::Challenge;
using membership::Delivered;
using membership::FrameReader;
using membership::Hello;
using membership::HostMessage;
using membership::Join;
using membership::Nodes;
using membership::Nonce;
using membership::Refused;
using membership::Welcome;
using membership::WhoseIs;

namespace {

// First bytes kept to describe a peer that is no host.
constexpr size_t kStrangerBytesKept = 256;
// A peer that is silent for this long may be PyTorch's store, which does not answer unknown bytes.
constexpr auto kSilenceBeforeProbe = std::chrono::milliseconds(500);
constexpr auto kAnswerPatience = std::chrono::milliseconds(900);
constexpr size_t kUnsentForDatagram = size_t{1} << 20;

member::ConnectionFailed failed_for_good(std::string message) {
  return {{ExitCode::rendezvous, std::move(message)}, false, true};
}

}  // namespace

struct MemberClient::Link {
  explicit Link(boost::asio::io_context& io) : limit(io), silence(io) {}

  enum class Step { dialling, hello, join, joined };
  Step step = Step::dialling;
  Join join;
  Nonce agent_nonce{};
  std::optional<membership::FrameSeal> seal;  // Seals what is sent, from the Join on.
  std::optional<uint64_t> wanted_instance;
  SocketAddress host;
  int fd = -1;  // The stream's.
  std::unique_ptr<ByteStream> stream;
  FrameReader<HostMessage> reader;
  std::string heard;  // Bytes before the first whole message.
  std::unique_ptr<StoreProbe> probe;
  boost::asio::steady_timer limit;    // Handshake deadline.
  boost::asio::steady_timer silence;  // Deadline of the host's first bytes.
};

MemberClient::MemberClient(boost::asio::io_context& io, Dialler& dialler, Options options,
                           Handlers handlers)
    : io_(io),
      dialler_(dialler),
      options_(std::move(options)),
      handlers_(std::move(handlers)),
      clients_(options_.clients, [](const std::string&) {}),
      stranger_(options_.member.endpoint),
      machine_(options_.member),
      drive_(io, machine_, [this](const Member::Effect& effect) { perform(effect); }),
      question_limit_(io) {}

MemberClient::~MemberClient() {
  dialler_.cancel();
}

// Wraps `call` so that it does nothing once this link is replaced or this object is gone.
template <typename Call>
auto MemberClient::while_linked(Call call) {
  return [this, weak = std::weak_ptr(link_), call = std::move(call)](auto&&... arguments) {
    if (const auto held = weak.lock(); held && held == link_)
      call(std::forward<decltype(arguments)>(arguments)...);
  };
}

void MemberClient::perform(const Member::Effect& effect) {
  struct Perform {
    MemberClient& self;
    void operator()(const member::Connect& e) const { self.connect(e.join); }
    // finish() still sends what was written before, such as a Goodbye.
    void operator()(const member::Disconnect&) const {
      self.dialler_.cancel();
      self.forget_question();
      const std::shared_ptr<Link> link = std::exchange(self.link_, nullptr);
      if (link && link->stream) link->stream->finish();
    }
    void operator()(const member::Send& e) const {
      if (!self.link_ || !self.link_->stream) return;
      self.write(e.message);
    }
    void operator()(const member::RoundFormed& e) const {
      membership::Round round = e.round;
      round.worker_secret = raw_bytes(self.worker_secret_);
      self.handlers_.round(round);
    }
    void operator()(const member::StopWorkers& e) const { self.handlers_.stop(e); }
    void operator()(const member::LeaveAnnounced&) const { self.handlers_.leave_announced(); }
    void operator()(const member::JobEnded& e) const { self.handlers_.ended(e.end); }
    void operator()(const member::GaveUp& e) const {
      const Handlers& to = self.handlers_;
      (e.refused && to.refused ? to.refused : to.failed)(e.error);
    }
    void operator()(const member::Say& e) const { self.handlers_.say(e.text); }
  };
  std::visit(Perform{*this}, effect);
}

void MemberClient::connect(Join join) {
  link_ = std::make_shared<Link>(io_);
  link_->join = std::move(join);
  dialler_.dial(machine_.is_reaped(),
                while_linked([this](DialOutcome outcome) { on_dialled(std::move(outcome)); }));
}

void MemberClient::on_dialled(DialOutcome outcome) {
  if (!outcome) return fail_link(std::move(outcome.error()));
  Link& link = *link_;
  const int fd = outcome->socket.release();
  link.stream = std::make_unique<ByteStream>(io_, fd, options_.unsent_bytes_max);
  link.fd = fd;
  link.host = remote_address_of(fd);
  link.join.dialled = link.host.ip.to_string();
  own_address_ = local_address_of(fd).ip.to_string();
  link.join.advertised = options_.advertised.empty() ? own_address_ : options_.advertised;
  link.join.is_host = outcome->own_host;
  link.join.own_end = local_address_of(fd).to_string();
  link.join.host_end = link.host.to_string();
  link.join.knows_owners = clients_.knows_owners();
  link.wanted_instance = outcome->host_instance;
  link.agent_nonce = random_nonce();
  link.step = Link::Step::hello;

  link.stream->start({while_linked([this](std::string_view bytes) { on_bytes(bytes); }),
                      while_linked([this](const std::string& why) { on_closed(why); })});
  call_after(link.limit, options_.handshake_limit, while_linked([this] { on_handshake_limit(); }));
  call_after(link.silence, kSilenceBeforeProbe, while_linked([this] { on_silence(); }));
  std::string bytes(membership::kMagic);
  membership::encode(membership::AgentMessage(Hello{membership::kProtocolVersion, options_.job_id,
                                                    link.agent_nonce, options_.only_this_job}),
                     bytes);
  link.stream->write(bytes);
}

void MemberClient::on_bytes(std::string_view bytes) {
  const std::shared_ptr<Link> link = link_;
  if (link->step == Link::Step::hello && link->heard.size() < kStrangerBytesKept)
    link->heard += bytes.substr(0, kStrangerBytesKept - link->heard.size());
  link->reader.feed(bytes);
  while (link == link_) {
    const Result<std::optional<HostMessage>> message = link->reader.next();
    if (!message) {
      if (link->step == Link::Step::hello) return on_stranger(stranger_.on_bytes(link->heard));
      if (link->reader.is_seal_broken()) return on_broken_seal();
      return on_closed(message.error().message);
    }
    if (!*message) return;
    on_message(**message);
  }
}

void MemberClient::on_message(const HostMessage& message) {
  if (const auto* nodes = std::get_if<Nodes>(&message); nodes && link_->step == Link::Step::joined)
    return on_nodes(*nodes);
  if (const auto* one = std::get_if<Delivered>(&message); one && link_->step == Link::Step::joined)
    return on_delivered(*one);
  const auto* refused = std::get_if<Refused>(&message);
  if (refused && options_.only_this_job && link_->step == Link::Step::hello)
    return on_other_host(*refused);
  const bool proven = options_.token.empty() || link_->reader.is_sealed();
  if (refused && !proven) return on_unproven_refusal(*refused);
  if (const auto* one = std::get_if<WhoseIs>(&message); one && link_->step == Link::Step::joined)
    return on_whose_is(*one);
  if (link_->step == Link::Step::joined) return drive_.post(member::Received{message});
  stranger_.on_host();
  if (refused) return on_verdict(message);
  if (link_->step == Link::Step::hello) {
    if (const auto* challenge = std::get_if<Challenge>(&message)) return on_challenge(*challenge);
  } else if (const auto* welcome = std::get_if<Welcome>(&message)) {
    return on_welcome(*welcome);
  }
  on_closed("it sent an unexpected message");
}

// Skips a host that refuses us before the token is checked: it may be of another job, version or
// user. In case it is ours after all, the user has to know at once.
void MemberClient::on_other_host(const Refused& refused) {
  const std::string text =
      fmt::format("the host at {} refuses this node: {}", link_->host.to_string(),
                  printable(refused.text, refused.text.size()));
  if (!std::exchange(other_host_said_, true)) handlers_.say(text);
  on_stranger({{ExitCode::rendezvous, text}});
}

void MemberClient::on_challenge(const Challenge& challenge) {
  const std::string& endpoint = options_.member.endpoint;
  if (challenge.token && options_.token.empty()) {
    return fail_link(failed_for_good(fmt::format(
        "the host at {} asks for a job token: give this node the same --rdzv-token-file or "
        "MUSTER_TOKEN as the others",
        endpoint)));
  }
  if (!challenge.token && !options_.token.empty()) {
    return fail_link(failed_for_good(
        fmt::format("the host at {} has no job token, but this node has one: give all nodes the "
                    "same --rdzv-token-file or MUSTER_TOKEN",
                    endpoint)));
  }
  if (const std::optional<LocalUsers::Found> host = whose_host()) {
    if (host->is_over) return on_closed("it closed the connection");
    if (host->is_local && host->uid != ::geteuid() && host->uid != uid_t{0}) {
      const member::ConnectionFailed theirs = failed_for_good(
          membership::users_differ_text(endpoint, user_text(host->uid), user_text(::geteuid())));
      return options_.only_this_job ? on_stranger(theirs) : fail_link(theirs);
    }
  }
  if (challenge.token) {
    const membership::FrameSeals seals = membership::frame_seals(
        options_.token, options_.job_id, link_->agent_nonce, challenge.nonce);
    link_->reader.expect(seals.host);
    link_->seal = seals.agent;
  }
  link_->step = Link::Step::join;
  write(link_->join);
}

// Only a token proves that the host belongs to the job. Without one any user who listens first at
// the endpoint could host it; only this user and root may.
std::optional<LocalUsers::Found> MemberClient::whose_host() const {
  if (!options_.token.empty() || link_->join.is_host) return std::nullopt;
  return LocalUsers().look(link_->fd);
}

void MemberClient::on_welcome(const Welcome& welcome) {
  host_has_proved_ = !options_.token.empty();  // A wrong seal would have ended it.
  if (link_->wanted_instance && *link_->wanted_instance != welcome.host_instance) {
    dialler_.answered_by_another();
    return fail_link({{ExitCode::rendezvous,
                       fmt::format("another host answers at {}; the host named in {} is gone",
                                   link_->host.to_string(), options_.member.endpoint)},
                      true});
  }
  worker_secret_ = membership::worker_secret(options_.token, options_.job_id, welcome.worker_seed);
  on_verdict(welcome);
}

// The host does not know the token, or frames were tampered with on the way.
void MemberClient::on_broken_seal() {
  if (link_->step == Link::Step::join) {
    return fail_link(failed_for_good(
        fmt::format("the host at {} does not know this job's token: give all nodes the same "
                    "--rdzv-token-file or MUSTER_TOKEN",
                    options_.member.endpoint)));
  }
  const std::string why(membership::kBrokenSeal);
  if (!std::exchange(meddling_said_, true)) {
    handlers_.say(
        fmt::format("the connection to the host at {} was closed, and is opened anew: {}; with a "
                    "job token this would cost only the connection",
                    options_.member.endpoint, why));
  }
  on_closed(why);
}

// Means a wrong token until a host has proved that it knows the token. Later anyone may have sent
// this, so we dial again: the host that we know, or the job's next one, can seal its refusal.
void MemberClient::on_unproven_refusal(const Refused& refused) {
  if (link_->step == Link::Step::joined) return on_broken_seal();
  stranger_.on_host();
  if (!host_has_proved_) return on_verdict(refused);
  on_closed(fmt::format("it refuses this node without a proof that it knows the job's token: {}",
                        printable(refused.text, refused.text.size())));
}

// Takes a Welcome or Refused: from here on the machine receives every message.
void MemberClient::on_verdict(const HostMessage& message) {
  const std::shared_ptr<Link> link = link_;
  link->step = Link::Step::joined;
  link->limit.cancel();
  drive_.post(member::ConnectionUp{link->join.dialled, link->join.advertised});
  if (link == link_) drive_.post(member::Received{message});
}

// REQUIRES: a stream.
void MemberClient::write(const membership::AgentMessage& message) {
  std::string bytes;
  membership::encode(message, bytes);
  if (link_->seal) link_->seal->close(bytes);
  link_->stream->write(bytes);
}

bool MemberClient::is_joined() const {
  return link_ && link_->step == Link::Step::joined && link_->stream;
}

// ---- Datagrams.

void MemberClient::send(membership::Datagram datagram) {
  CHECK(datagram.payload.size() <= membership::kDatagramBytesMax);
  const std::optional<ClockOffset::Reading> there = machine_.host_time(datagram.at);
  if (!is_joined() || !there || link_->stream->unsent() > kUnsentForDatagram) return;
  datagram.at = there->at;
  datagram.at_error += there->error;
  write(std::move(datagram));
}

void MemberClient::on_delivered(const Delivered& message) {
  const std::optional<ClockOffset::Reading> here = machine_.own_time(message.at);
  if (!here || !handlers_.datagram) return;
  Delivered delivered = message;
  delivered.at = here->at;
  // Another agent may state any error.
  delivered.at_error = std::min(message.at_error, Duration::max() - here->error) + here->error;
  handlers_.datagram(delivered);
}

// ---- Owners of connections to the job's store.

// Puts our interface number into a link-local address, which comes with the host's.
SocketAddress MemberClient::as_seen_here(const SocketAddress& end) const {
  if (end.ip.scope() == 0) return end;
  return {IpAddress::v6(end.ip.bytes(), local_address_of(link_->fd).ip.scope()), end.port};
}

void MemberClient::on_whose_is(const WhoseIs& question) {
  const auto client = SocketAddress::parse(question.client);
  const auto store = SocketAddress::parse(question.store);
  const bool to_job =
      client && store && clients_.belongs(as_seen_here(*client), as_seen_here(*store));
  write(membership::Belongs{question.id, to_job});
}

// ---- All nodes of the job.

void MemberClient::nodes(std::function<void(std::vector<membership::NodeLine>)> done) {
  question_.askers.push_back(std::move(done));
  if (question_.askers.size() == 1) ask();
}

// Sends the Query. Without contact the answer is empty, but comes from the loop like any other.
void MemberClient::ask() {
  ++question_.id;
  const bool joined = is_joined();
  call_after(question_limit_, joined ? kAnswerPatience : Duration::zero(),
             [this, id = question_.id] {
               if (id == question_.id) forget_question();
             });
  if (!joined) return;
  write(membership::Query{question_.id});
}

void MemberClient::on_nodes(const Nodes& part) {
  if (question_.askers.empty() || part.query != question_.id) return;
  std::vector<membership::NodeLine>& lines = question_.lines;
  lines.insert(lines.end(), part.lines.begin(), part.lines.end());
  if (part.left_out > 0)
    lines.push_back({-1, "", 0, 0, "and " + counted(part.left_out, "more node")});
  if (part.last) answer_askers();
}

void MemberClient::answer_askers() {
  question_limit_.cancel();
  const auto askers = std::exchange(question_.askers, {});
  const auto lines = std::exchange(question_.lines, {});
  for (const auto& done : askers)
    done(lines);
}

// Answers with an empty list; drops a partial answer.
void MemberClient::forget_question() {
  question_.lines.clear();
  answer_askers();
}

void MemberClient::on_closed(const std::string& why) {
  const std::shared_ptr<Link> link = link_;
  if (link->step == Link::Step::hello && link->heard.empty()) return on_hangup();
  if (link->step == Link::Step::joined) {
    link_.reset();
    forget_question();
    return drive_.post(member::ConnectionFailed{
        {ExitCode::rendezvous, fmt::format("the connection to the host at {} broke: {}",
                                           options_.member.endpoint, why)}});
  }
  if (options_.only_this_job) dialler_.hung_up();
  fail_link({{ExitCode::rendezvous, fmt::format("the handshake with the host at {} failed: {}",
                                                options_.member.endpoint, why)}});
}

void MemberClient::on_handshake_limit() {
  dialler_.silent();
  fail_link(stranger_.on_silence());
}

// Probes a silent peer for a TCPStore, the most likely other server; a slow host may still answer.
void MemberClient::on_silence() {
  const auto is_silent = [this] {
    return link_->step == Link::Step::hello && link_->heard.empty();
  };
  if (!is_silent()) return;
  ask_for_store([this, is_silent](bool is_store) {
    if (is_store && is_silent()) on_stranger(stranger_.on_store());
  });
}

void MemberClient::on_hangup() {
  link_->stream.reset();
  link_->limit.cancel();
  link_->silence.cancel();
  ask_for_store([this](bool is_store) {
    if (is_store) return on_stranger(stranger_.on_store());
    dialler_.hung_up();
    fail_link(stranger_.on_hangup());
  });
}

void MemberClient::ask_for_store(std::function<void(bool)> answered) {
  link_->probe = std::make_unique<StoreProbe>(io_, link_->host, while_linked(std::move(answered)));
}

void MemberClient::on_stranger(member::ConnectionFailed failure) {
  failure.fatal = failure.fatal && !options_.only_this_job;
  // Once a host has proved itself, someone on the way to it may be answering.
  if (host_has_proved_) {
    dialler_.hung_up();
  } else {
    dialler_.answered_by_another();
  }
  fail_link(std::move(failure));
}

void MemberClient::fail_link(member::ConnectionFailed failure) {
  link_.reset();
  // Once a host has proved itself, someone on the way may cause this, and must not end the node.
  failure.fatal = failure.fatal && !host_has_proved_;
  drive_.post(std::move(failure));
}

}  // namespace muster
