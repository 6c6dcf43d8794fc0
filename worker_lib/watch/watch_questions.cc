#include "worker_lib/watch/watch_questions.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <optional>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

#include "rendezvous/base/random.h"
#include "rendezvous/base/steady_now.h"
#include "rendezvous/base/unique_fd.h"

namespace muster::worker::watch {
namespace {

using Reply = Watch::Questions::Reply;

}  // namespace

// Gives no reply if a rank cannot be dialled for another reason (no route, a full queue).
void SocketQuestions::ask(int rank) {
  const Members& world = directory_.world;
  const bool local = world[rank].node == world.self().node;
  const uint16_t port = local ? uint16_t{0} : directory_.ports[static_cast<size_t>(rank)];
  Dialled dialled = dial_rank(directory_.keys, world, rank, port);
  if (is_refusal(dialled.error)) replies_.push_back({rank, Reply::Kind::refused});
  if (is_out_of_descriptors(dialled.error)) replies_.push_back({rank, Reply::Kind::unasked});
  if (dialled.error != 0 && dialled.error != EINPROGRESS) return;
  Asked asked;
  asked.socket = GuardedFd(std::move(dialled.socket));
  asked.terms = {link_purpose(directory_.keys, world, world.me, rank, true, port),
                 random_value<LinkNonce>(),
                 {}};
  asked.output = encode(Hello{asked.terms.dialler, world.me, world.size(), true});
  asked_[rank] = std::move(asked);
}

// Sends and receives what the kernel allows. A connection that ends without an answer means that
// the process ended; a network that is down counts as silence.
SocketQuestions::Progress SocketQuestions::progress(Asked& asked, std::string& said) const {
  const auto after = [](int error) {
    if (error == EAGAIN || error == ENOTCONN) return Progress::open;
    return is_refusal(error) ? Progress::refused : Progress::lost;
  };
  std::array<char, 16384> bytes;
  for (;;) {
    int lends = -1;
    if (const int error = send_some(asked.socket, asked.output, lends)) return after(error);
    const ssize_t got = ::recv(asked.socket.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return after(errno);
    if (got == 0) return Progress::refused;
    asked.input.feed({bytes.data(), static_cast<size_t>(got)});
    if (const Progress now = hear(asked, said); now != Progress::open) return now;
  }
}

SocketQuestions::Progress SocketQuestions::hear(Asked& asked, std::string& said) const {
  const std::optional<Message> message = asked.input.next();
  if (!message) return asked.input.broken() ? Progress::lost : Progress::open;
  const std::string& secret = directory_.keys.secret;
  if (asked.is_proved) {
    const auto* const answer = std::get_if<Answer>(&*message);
    if (answer == nullptr) return Progress::lost;
    said = answer->text;
    return Progress::said;
  }
  const auto* const challenge = std::get_if<Challenge>(&*message);
  if (challenge == nullptr) return Progress::lost;
  asked.terms.listener = challenge->nonce;
  if (!same_mac(challenge->proof, listener_proof(secret, asked.terms))) return Progress::lost;
  asked.is_proved = true;
  asked.input.trust();
  asked.output += encode(Proof{dialler_proof(secret, asked.terms)});
  return Progress::open;
}

std::vector<Reply> SocketQuestions::wait(Deadline until) {
  while (replies_.empty() && std::chrono::steady_clock::now() < until) {
    std::vector<pollfd> polled;
    for (const auto& [rank, asked] : asked_) {
      const bool writes = !asked.output.empty();
      polled.push_back({asked.socket.fd(), static_cast<short>(writes ? POLLOUT : POLLIN), 0});
    }
    ::poll(polled.data(), polled.size(), poll_timeout(until));
    for (auto one = asked_.begin(); one != asked_.end();) {
      std::string said;
      const Progress now = progress(one->second, said);
      if (now == Progress::said)
        replies_.push_back({one->first, Reply::Kind::said, std::move(said)});
      if (now == Progress::refused) replies_.push_back({one->first, Reply::Kind::refused});
      one = now == Progress::open ? std::next(one) : asked_.erase(one);
    }
  }
  return std::exchange(replies_, {});
}

ProcessState SocketQuestions::state_of(int rank) const {
  const auto index = static_cast<size_t>(rank);
  return index < directory_.lives.size() ? worker::state_of(directory_.lives[index])
                                         : ProcessState::unknown;
}

}  // namespace muster::worker::watch
