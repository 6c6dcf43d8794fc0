#include "rendezvous/store/store_listener.h"

#include <cerrno>
#include <chrono>
#include <utility>

#include <sys/socket.h>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/call_after.h"
#include "rendezvous/store/store_sockets.h"

namespace muster {
namespace {

// Connections accepted per batch; between batches the loop runs its other work.
constexpr int kStoreAccepts = 64;
constexpr auto kAcceptPause = std::chrono::milliseconds{100};

}  // namespace

Result<std::vector<std::unique_ptr<StoreListener>>> StoreListener::open(
    boost::asio::io_context& io, StoreServer& server, const std::vector<SocketAddress>& addresses,
    const std::shared_ptr<Places>& places) {
  auto bound = listen_on(addresses);
  if (!bound) return fail(ExitCode::environment, "the store " + bound.error().message);
  std::vector<std::unique_ptr<StoreListener>> listeners;
  for (ListeningSocket& one : *bound)
    listeners.emplace_back(new StoreListener(io, server, std::move(one), places));
  return listeners;
}

StoreListener::StoreListener(boost::asio::io_context& io, StoreServer& server,
                             ListeningSocket bound, std::shared_ptr<Places> places)
    : server_(server),
      places_(places ? std::move(places) : std::make_shared<Places>(Places::kUnlimited)),
      socket_(io, bound.fd.release()),
      pause_timer_(io),
      port_(bound.address.port),
      alive_(std::make_shared<bool>(true)) {
  store_socket_opened(socket_.native_handle());
  arm();
}

StoreListener::~StoreListener() {
  store_socket_closing(socket_.native_handle());
  *alive_ = false;
}

void StoreListener::arm() {
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this, alive = alive_](boost::system::error_code error) {
                       if (!error && *alive) accept_batch();
                     });
}

void StoreListener::accept_batch() {
  for (int i = 0; i < kStoreAccepts; i++) {
    if (places_->is_full() && !server_.has_half_open() && !places_->make_room()) return pause();
    const int fd =
        ::accept4(socket_.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      server_.adopt(fd, {}, places_->take());
      if (places_->is_over()) server_.drop_half_open();
      continue;
    }
    if (errno == EAGAIN) break;
    if (!concerns_one_connection(errno)) return pause();
  }
  arm();
}

void StoreListener::pause() {
  pauses_++;
  call_after(pause_timer_, kAcceptPause, [this, alive = alive_] {
    if (*alive) accept_batch();
  });
}

}  // namespace muster
