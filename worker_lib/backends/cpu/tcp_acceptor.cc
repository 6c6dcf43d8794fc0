#include "worker_lib/backends/cpu/tcp_acceptor.h"

#include <cerrno>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include "rendezvous/base/event_fd.h"
#include "rendezvous/base/hex.h"
#include "rendezvous/base/random.h"
#include "worker_lib/quiet_thread.h"

namespace muster::worker {
namespace {

// Time after which an unauthenticated connection is closed: a port scanner, or a peer that died.
constexpr std::chrono::seconds kHelloLimit{10};
// Unauthenticated connections held at a time. More wait in the kernel's queue.
constexpr size_t kVisitorsMax = 256;

}  // namespace

std::string random_socket_name() {
  return "muster-" + to_hex(random_bytes(16));
}

std::string ListenAddress::encode() const {
  return fmt::format("{} {}", tcp.to_string(), to_hex(local));
}

std::optional<ListenAddress> ListenAddress::decode(std::string_view text) {
  const size_t blank = text.find(' ');
  if (blank == std::string_view::npos) return std::nullopt;
  const auto address = SocketAddress::parse(text.substr(0, blank));
  const auto name = from_hex(text.substr(blank + 1));
  if (!address || !name) return std::nullopt;
  return ListenAddress{*address, *name};
}

Outcome<Listeners> open_listeners(const Peer& self) {
  const std::optional<IpAddress> ip = IpAddress::parse(self.address);
  if (!ip)
    return failed(ErrorCode::system,
                  fmt::format("{} has no usable address: {:?}", describe(self), self.address));
  auto listening = listen_near(*ip);
  if (!listening) return failed(ErrorCode::system, listening.error().message);

  Listeners open;
  open.listeners.push_back(std::move(listening->fd));
  open.address = {{*ip, listening->address.port}, random_socket_name()};
  open.listeners.push_back(listen_local(open.address.local));
  if (!open.listeners.back()) return socket_failure("listen on an abstract Unix socket", errno);
  return open;
}

std::string link_purpose(const LinkHello& hello, const ListenAddress& to) {
  return fmt::format("data {} from {} to {}", hello.purpose, hello.from, to.encode());
}

struct Acceptor::Candidate {
  Socket socket;
  std::chrono::steady_clock::time_point until;
  size_t heard = 0;  // Bytes received of the LinkHello, then of the proof.
  LinkHello hello = {};
  bool is_challenged = false;
  LinkTerms terms = {};
  Mac proof{};
};

Outcome<std::unique_ptr<Acceptor>> Acceptor::start(Options options) {
  std::unique_ptr<Acceptor> made(new Acceptor(std::move(options)));
  if (!made->stop_) return socket_failure("make an eventfd", errno);
  Outcome<std::thread> thread = start_quiet_thread([self = made.get()] { self->serve(); });
  if (!thread) return tl::unexpected(std::move(thread.error()));
  made->thread_ = std::move(*thread);
  return made;
}

Acceptor::Acceptor(Options options) : options_(std::move(options)), stop_(open_event_fd()) {}

Acceptor::~Acceptor() {
  raise_event(stop_.get());
  if (thread_.joinable()) thread_.join();
}

void Acceptor::serve() {
  std::vector<pollfd> polled;
  while (true) {
    polled.assign(1, {stop_.get(), POLLIN, 0});
    const bool full = candidates_.size() >= kVisitorsMax;
    for (const Socket& listener : options_.open.listeners)
      polled.push_back({full ? -1 : listener.get(), POLLIN, 0});
    for (const Candidate& candidate : candidates_)
      polled.push_back({candidate.socket.get(), POLLIN, 0});
    poll(polled.data(), polled.size(), candidates_.empty() ? -1 : 1000);
    if (polled[0].revents != 0) return;

    const auto now = std::chrono::steady_clock::now();
    std::erase_if(candidates_, [&](Candidate& one) { return hear(one) || now >= one.until; });
    for (const Socket& listener : options_.open.listeners)
      accept_from(listener.get());
  }
}

void Acceptor::accept_from(int listener) {
  while (candidates_.size() < kVisitorsMax) {
    int error = 0;
    Socket socket = accept_next(listener, error);
    if (!socket) {
      // Sleeps when out of descriptors: poll() would spin until some are closed.
      if (is_out_of_descriptors(error)) std::this_thread::sleep_for(std::chrono::milliseconds{10});
      return;
    }
    if (!is_own_user(socket.get())) continue;
    set_no_delay(socket.get());
    Candidate candidate{std::move(socket), std::chrono::steady_clock::now() + kHelloLimit};
    if (!hear(candidate)) candidates_.push_back(std::move(candidate));
  }
}

// Returns true if the candidate is done: admitted, or to be closed.
bool Acceptor::hear(Candidate& candidate) {
  for (;;) {
    const bool proves = candidate.is_challenged;
    auto* const bytes = proves ? reinterpret_cast<char*>(candidate.proof.data())
                               : reinterpret_cast<char*>(&candidate.hello);
    const size_t size = proves ? sizeof candidate.proof : sizeof candidate.hello;
    const ssize_t got =
        recv(candidate.socket.get(), bytes + candidate.heard, size - candidate.heard, MSG_DONTWAIT);
    if (got < 0) return errno != EAGAIN && errno != EINTR;
    if (got == 0) return true;
    candidate.heard += static_cast<size_t>(got);
    if (candidate.heard < size) continue;
    if (proves) {
      admit(candidate);
      return true;
    }
    if (!challenge(candidate)) return true;
  }
}

// Returns false if the hello is invalid or the challenge cannot be sent.
bool Acceptor::challenge(Candidate& candidate) const {
  const LinkHello& hello = candidate.hello;
  const LinkHello expected;
  if (hello.magic != expected.magic || hello.version != expected.version) return false;
  if (hello.from < 0 || hello.from >= options_.size) return false;
  if (hello.purpose > static_cast<uint8_t>(Purpose::transfers)) return false;
  candidate.is_challenged = true;
  candidate.heard = 0;
  candidate.terms = {link_purpose(hello, options_.open.address), hello.nonce,
                     random_value<LinkNonce>()};
  const LinkChallenge answer{candidate.terms.listener,
                             listener_proof(options_.secret, candidate.terms)};
  // The send buffer of a new connection has room for all of it.
  return send(candidate.socket.get(), &answer, sizeof answer, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof answer);
}

void Acceptor::admit(Candidate& candidate) {
  if (!same_mac(candidate.proof, dialler_proof(options_.secret, candidate.terms))) return;
  if (send(candidate.socket.get(), &kAdmitted, 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1) return;
  const Deliver& deliver = options_.deliver[candidate.hello.purpose];
  if (deliver) deliver(candidate.hello.from, std::move(candidate.socket));
}

}  // namespace muster::worker
