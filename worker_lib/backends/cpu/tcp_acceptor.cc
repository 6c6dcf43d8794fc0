#include "worker_lib/backends/cpu/tcp_acceptor.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

#include "worker_lib/quiet_thread.h"

namespace muster::worker {
namespace {

// A connection without a complete hello by then is closed: a port scanner, or a peer that died.
constexpr std::chrono::seconds kHelloLimit{10};
// Connections without a complete hello. More wait in the kernel's queue.
constexpr size_t kVisitorsMax = 256;

}  // namespace

Hello make_hello(Purpose purpose, int from, const ListenAddress& to) {
  Hello hello;
  hello.purpose = static_cast<uint8_t>(purpose);
  hello.from = from;
  std::memcpy(hello.secret, to.secret.data(), kSecretBytes);
  return hello;
}

struct Acceptor::Candidate {
  Socket socket;
  std::chrono::steady_clock::time_point until;
  size_t heard = 0;
  Hello hello;
};

Outcome<std::unique_ptr<Acceptor>> Acceptor::start(Options options) {
  Outcome<WakeEvent> stop = WakeEvent::make();
  if (!stop) return tl::unexpected(stop.error());
  std::unique_ptr<Acceptor> made(new Acceptor(std::move(options)));
  made->stop_ = std::move(*stop);
  Outcome<std::thread> thread = start_quiet_thread([self = made.get()] { self->serve(); });
  if (!thread) return tl::unexpected(std::move(thread.error()));
  made->thread_ = std::move(*thread);
  return made;
}

Acceptor::Acceptor(Options options) : options_(std::move(options)) {}

Acceptor::~Acceptor() {
  stop_.wake();
  if (thread_.joinable()) thread_.join();
}

void Acceptor::serve() {
  std::vector<pollfd> polled;
  while (true) {
    polled.assign(1, {stop_.fd(), POLLIN, 0});
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
    Socket socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      // Out of descriptors: poll() would spin until some are closed.
      if (is_out_of_descriptors(errno)) std::this_thread::sleep_for(std::chrono::milliseconds{10});
      return;
    }
    if (!is_own_user(socket.get())) continue;
    set_no_delay(socket.get());
    Candidate candidate{std::move(socket), std::chrono::steady_clock::now() + kHelloLimit, 0, {}};
    if (!hear(candidate)) candidates_.push_back(std::move(candidate));
  }
}

// Whether the candidate is done: admitted, or closed.
bool Acceptor::hear(Candidate& candidate) {
  auto* bytes = reinterpret_cast<char*>(&candidate.hello);
  const ssize_t got = recv(candidate.socket.get(), bytes + candidate.heard,
                           sizeof(Hello) - candidate.heard, MSG_DONTWAIT);
  if (got < 0) return errno != EAGAIN && errno != EINTR;
  if (got == 0) return true;
  candidate.heard += static_cast<size_t>(got);
  if (candidate.heard < sizeof(Hello)) return false;
  admit(candidate);
  return true;
}

void Acceptor::admit(Candidate& candidate) {
  const Hello& hello = candidate.hello;
  const Hello expected;
  const bool known =
      hello.magic == expected.magic && hello.version == expected.version && hello.from >= 0 &&
      hello.from < options_.size &&
      std::memcmp(hello.secret, options_.open.address.secret.data(), kSecretBytes) == 0;
  if (!known || hello.purpose > static_cast<uint8_t>(Purpose::transfers)) return;
  const Deliver& deliver = options_.deliver[hello.purpose];
  if (deliver) deliver(hello.from, std::move(candidate.socket));
}

}  // namespace muster::worker
