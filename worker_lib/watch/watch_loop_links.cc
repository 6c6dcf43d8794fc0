// The links of the watch: dialling, greeting, reading, writing.
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/error.h"
#include "rendezvous/base/random.h"
#include "rendezvous/base/steady_now.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_lib/watch/process_life.h"
#include "worker_lib/watch/watch_loop.h"

namespace muster::worker {

using namespace watch;  // NOLINT: names of the state machine

namespace {

constexpr Duration kDialAgain = std::chrono::milliseconds(10);
// Limit for a peer that dialled us to authenticate.
constexpr Duration kGreetingMax = std::chrono::seconds(5);
constexpr Duration kReapMax = std::chrono::milliseconds(50);
// The same for one that is known to be dying: what it takes without memory to be freed.
constexpr Duration kDyingMax = std::chrono::milliseconds(1);
constexpr size_t kStrangersMax = 4096;
// Pause in accepting after descriptors have run out.
constexpr Duration kAcceptPause = std::chrono::milliseconds(20);

// True once the process can be reaped.
bool is_reapable(const GuardedFd& process) {
  pollfd ended{process.fd(), POLLIN, 0};
  return ::poll(&ended, 1, 0) > 0;
}

uint32_t events_for(bool wants_to_write) {
  return EPOLLIN | (wants_to_write ? EPOLLOUT : 0u);
}

}  // namespace

// ---- dialling

void WatchLoop::begin_dial(const Dial& dial) {
  const Members& world = options_.world;
  const bool local = world[dial.rank].node == world.self().node;
  Dialled made = dial_rank(options_.keys, world, dial.rank, port_of(dial.rank, dial.port));
  if (is_refusal(made.error)) return step(DialFailed{dial.rank, Silence::refused});
  if (is_out_of_descriptors(made.error) && tree_.is_setting_up())
    return surrender("connect to " + describe(world[dial.rank]), made.error);
  if (made.error != 0 && made.error != EINPROGRESS) {
    // Full backlog (EAGAIN), or network down.
    if (steady_now() >= dial.until) return step(DialFailed{dial.rank, Silence::none});
    retries_[dial.rank] = {dial, steady_now() + kDialAgain};
    return;
  }
  Link link;
  link.socket = GuardedFd(std::move(made.socket));
  link.stage = made.error == 0 ? Stage::greeting : Stage::connecting;
  link.rank = dial.rank;
  link.dialled = true;
  link.port = dial.port;
  link.over_unix = local;
  link.until = dial.until;
  link.wants_to_write = link.stage == Stage::connecting;
  const LinkId id = add(std::move(link));
  if (made.error == 0) on_connected(id, links_.at(id));
}

// Rank 0's port is known from the start.
uint16_t WatchLoop::port_of(int rank, uint16_t port) const {
  return port == 0 && rank == 0 ? options_.root_port : port;
}

void WatchLoop::on_connected(LinkId id, Link& link) {
  const Members& world = options_.world;
  link.stage = Stage::greeting;
  const uint16_t port = link.over_unix ? uint16_t{0} : port_of(link.rank, link.port);
  link.terms = {link_purpose(options_.keys, world, world.me, link.rank, false, port),
                random_value<LinkNonce>(),
                {}};
  send(link, Hello{link.terms.dialler, world.me, world.size()});
  flush(id, link);
}

void WatchLoop::accept(bool over_unix) {
  for (;;) {
    int error = 0;
    const GuardedFd& listener = over_unix ? options_.unix_listener : options_.tcp_listener;
    UniqueFd socket = accept_next(listener.fd(), error);
    if (!socket) return error == 0 ? void() : pause_accepting(error);
    if (strangers_ >= kStrangersMax || !is_own_user(socket.get())) continue;
    if (!over_unix) set_watch_options(socket.get());
    Link link;
    link.socket = GuardedFd(std::move(socket));
    link.over_unix = over_unix;
    link.until = steady_now() + kGreetingMax;
    ++strangers_;
    add(std::move(link));
  }
}

// Stops polling the listener, which stays readable: the connection stays in the backlog. During the
// set-up no further rank could be linked; later, descriptors may become free again.
void WatchLoop::pause_accepting(int error) {
  if (is_out_of_descriptors(error) && tree_.is_setting_up())
    return surrender("accept another rank's connection", error);
  accept_again_ = steady_now() + kAcceptPause;
  listen_for(0);
}

void WatchLoop::listen_for(uint32_t events) {
  if (options_.unix_listener.is_open())
    control(EPOLL_CTL_MOD, options_.unix_listener.fd(), kUnixTag, events);
  if (options_.tcp_listener.is_open())
    control(EPOLL_CTL_MOD, options_.tcp_listener.fd(), kTcpTag, events);
}

void WatchLoop::surrender(const std::string& attempt, int error) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::string message =
      fmt::format("{} cannot {}: {}; raise its limit of descriptors (ulimit -n), which is {}",
                  describe(options_.world.self()), attempt, std::strerror(error), limit.rlim_cur);
  step(Surrender{{ErrorCode::system, message, {}}});
}

LinkId WatchLoop::add(Link link) {
  const LinkId id = next_link_++;
  CHECK(control(EPOLL_CTL_ADD, link.socket.fd(), id, events_for(link.wants_to_write)));
  links_.emplace(id, std::move(link));
  return id;
}

// Reports the end of a link. The kernel closes a process's sockets before its parent can reap it; a
// death is reported only once it can, or after `patience`: else ranks that end because of it might
// be reaped first and get the blame. A launcher has to cope with that where the death is known long
// before. The process of a rank that leaves in order may live on.
void WatchLoop::end_of(LinkId id, Duration patience) {
  const bool may_be_death = links_.at(id).over_unix && !tree_.expects_end(id);
  int pid = 0;
  GuardedFd process = may_be_death ? watch_process(links_.at(id).socket, pid) : GuardedFd();
  drop(id);
  if (!process.is_open()) return step(Closed{id});
  CHECK(control(EPOLL_CTL_ADD, process.fd(), id, EPOLLIN));
  endings_[id] = {std::move(process), pid, steady_now() + patience};
}

// A thread of the peer that lives as long as the process has ended. What the peer has sent before
// counts first.
void WatchLoop::on_cut(LinkId id) {
  read(id);
  const auto link = links_.find(id);
  if (link == links_.end() || link->second.stage != Stage::linked) return;
  if (const int pid = peer_of(link->second.socket); pid > 0 && is_exiting(pid))
    end_of(id, kDyingMax);
}

void WatchLoop::conclude_ending(LinkId id, bool lives) {
  if (endings_.erase(id) > 0) step(Closed{id, lives});
}

// Forgets the link without an event for the WatchTree.
void WatchLoop::drop(LinkId id) {
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  const Link& link = found->second;
  if (link.stage != Stage::linked && !link.dialled) --strangers_;
  if (lifelines_ && link.over_unix && link.stage == Stage::linked) lifelines_->remove(id);
  links_.erase(found);
}

// Drops a link that is not linked yet; if this rank dialled it, reports that to the WatchTree.
void WatchLoop::abandon(LinkId id, Silence silence) {
  const bool dialled = links_.at(id).dialled;
  const int rank = links_.at(id).rank;
  drop(id);
  if (dialled) step(DialFailed{rank, silence});
}

void WatchLoop::expire_links(Instant now) {
  if (accept_again_ <= now) {
    accept_again_ = kNever;
    listen_for(EPOLLIN);
  }
  std::vector<LinkId> late;
  for (const auto& [id, link] : links_) {
    if (link.until <= now) late.push_back(id);
  }
  for (const LinkId id : late) {
    const auto link = links_.find(id);
    if (link == links_.end()) continue;  // The end of another may have ended the watch.
    abandon(id, link->second.stage == Stage::connecting ? Silence::none : Silence::mute);
  }
  std::vector<std::pair<LinkId, int>> ended;
  for (const auto& [id, ending] : endings_) {
    if (ending.until <= now) ended.emplace_back(id, ending.pid);
  }
  for (const auto& [id, pid] : ended)
    conclude_ending(id, !is_reapable(endings_.at(id).process) && !is_exiting(pid));
  std::vector<Dial> again;
  for (const auto& [rank, retry] : retries_) {
    if (retry.at <= now) again.push_back(retry.dial);
  }
  for (const Dial& dial : again) {
    if (retries_.erase(dial.rank) != 0) begin_dial(dial);
  }
}

// ---- reading

void WatchLoop::on_link(LinkId id, uint32_t events) {
  const auto found = links_.find(id);
  if (found == links_.end()) {
    // Or this is an older event, of the link that has ended since.
    const auto ending = endings_.find(id);
    if (ending != endings_.end() && is_reapable(ending->second.process)) conclude_ending(id, false);
    return;
  }
  Link& link = found->second;
  if (link.stage == Stage::connecting) {
    const int error = dial_error(link.socket.fd());
    if (error == 0 && (events & EPOLLOUT) == 0) return;
    if (error == 0) return on_connected(id, link);
    if (is_refusal(error)) return abandon(id, Silence::refused);
    retries_[link.rank] = {{link.rank, link.port, link.until}, steady_now() + kDialAgain};
    return drop(id);
  }
  if ((events & EPOLLOUT) != 0) flush(id, link);
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read(id);
}

void WatchLoop::read(LinkId id) {
  std::array<char, 16384> bytes;
  for (;;) {
    const auto found = links_.find(id);
    if (found == links_.end()) return;
    Link& link = found->second;
    const ssize_t n = receive_with_fd(link.socket.fd(), bytes, link.borrowed);
    if (link.stage == Stage::linked) link.borrowed.reset();  // It has one already.
    if (n > 0) {
      link.input.feed({bytes.data(), static_cast<size_t>(n)});
      take_messages(id);
      continue;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (link.stage == Stage::linked) return end_of(id, kReapMax);
    if (!link.is_challenged) return abandon(id, Silence::refused);
    // The peer lives, but its greeting timed out: perhaps this process was stopped.
    retries_[link.rank] = {{link.rank, link.port, link.until}, steady_now() + kDialAgain};
    return drop(id);
  }
}

void WatchLoop::take_messages(LinkId id) {
  for (auto found = links_.find(id); found != links_.end(); found = links_.find(id)) {
    Link& link = found->second;
    const std::optional<Message> message = link.input.next();
    if (message && link.stage == Stage::linked) {
      step(Received{id, *message});
      continue;
    }
    if (message && greet(id, *message)) continue;
    if (!message && !link.input.broken()) return;
    // Not a rank of this job, or a broken stream.
    if (link.stage != Stage::linked) return abandon(id, Silence::refused);
    drop(id);
    return step(Closed{id});
  }
}

// Returns false if the peer must not be linked.
bool WatchLoop::greet(LinkId id, const Message& message) {
  return std::visit([&](const auto& one) { return take(id, one); }, message);
}

bool WatchLoop::take(LinkId id, const Hello& hello) {
  Link& link = links_.at(id);
  if (link.dialled || link.rank >= 0 || !is_acceptable(link, hello)) return false;
  const Members& world = options_.world;
  link.rank = hello.rank;
  link.asks = hello.asks;
  const uint16_t port = link.over_unix ? uint16_t{0} : options_.port;
  link.terms = {link_purpose(options_.keys, world, hello.rank, world.me, hello.asks, port),
                hello.nonce, random_value<LinkNonce>()};
  send(link, Challenge{link.terms.listener, listener_proof(options_.keys.secret, link.terms)});
  flush(id, link);
  return true;
}

bool WatchLoop::take(LinkId id, const Challenge& challenge) {
  Link& link = links_.at(id);
  link.terms.listener = challenge.nonce;
  const std::string& secret = options_.keys.secret;
  const bool is_due = link.dialled && !std::exchange(link.is_challenged, true);
  if (!is_due || !same_mac(challenge.proof, listener_proof(secret, link.terms))) return false;
  send(link, Proof{dialler_proof(secret, link.terms)});
  if (link.over_unix && lifeline_) link.lends = lifeline_->fd();
  flush(id, link);
  return true;
}

bool WatchLoop::take(LinkId id, const Admitted&) {
  if (!links_.at(id).is_challenged) return false;
  admit(id);
  return true;
}

bool WatchLoop::take(LinkId id, const Proof& proof) {
  Link& link = links_.at(id);
  const bool is_due = !link.dialled && link.rank >= 0;
  if (!is_due || !same_mac(proof.proof, dialler_proof(options_.keys.secret, link.terms)))
    return false;
  if (link.asks) {  // Never linked: its end does not mean a death.
    send(link, Answer{options_.progress()});
    flush(id, link);
    return true;
  }
  --strangers_;
  send(link, Admitted{});
  if (link.over_unix && lifeline_) link.lends = lifeline_->fd();
  admit(id);
  return true;
}

void WatchLoop::admit(LinkId id) {
  Link& link = links_.at(id);
  link.stage = Stage::linked;
  link.until = kNever;
  link.input.trust();
  flush(id, link);
  if (std::optional<Lifeline> line;
      lifelines_ && link.borrowed && (line = Lifeline::open(link.borrowed)))
    lifelines_->add(id, std::move(*line));
  link.borrowed.reset();
  step(Linked{id, link.rank});
}

bool WatchLoop::is_acceptable(const Link& link, const Hello& hello) const {
  const Members& world = options_.world;
  if (hello.world_size != world.size() || (hello.asks && !options_.progress)) return false;
  if (hello.rank < 0 || hello.rank >= world.size() || hello.rank == world.me) return false;
  return !link.over_unix || world[hello.rank].node == world.self().node;
}

// ---- writing

void WatchLoop::send(Link& link, const Message& message) {
  link.output += encode(message);
}

// Ignores errors: reading meets them, too.
void WatchLoop::flush(LinkId id, Link& link) {
  const int error = send_some(link.socket, link.output, link.lends);
  if (error != 0 && error != EAGAIN) link.output.clear();
  const bool wants_to_write = !link.output.empty();
  if (wants_to_write == link.wants_to_write) return;
  link.wants_to_write = wants_to_write;
  control(EPOLL_CTL_MOD, link.socket.fd(), id, events_for(wants_to_write));
}

}  // namespace muster::worker
