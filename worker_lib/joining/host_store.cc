#include "worker_lib/joining/host_store.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/system_error.hpp>
#include <fmt/format.h>
#include <sys/socket.h>

#include "rendezvous/base/random.h"
#include "rendezvous/net/call_after.h"
#include "rendezvous/store/store_listener.h"
#include "rendezvous/store/store_server.h"
#include "worker_lib/fork_guard.h"
#include "worker_lib/quiet_thread.h"

namespace muster::worker {
namespace {

// Polling interval of a retired store that may still be needed; limit of the delay of an exit.
constexpr auto kRetiredLook = std::chrono::milliseconds{5};
constexpr auto kExitWait = std::chrono::seconds{1};

tl::unexpected<Failure> cannot_host(const std::string& why) {
  return failed(ErrorCode::system, fmt::format("cannot host the job's store: {}; check the limits "
                                               "of descriptors and processes (ulimit -n, -u)",
                                               why));
}

}  // namespace

struct HostStore::Server {
  enum class Phase { serving, retired, closed };

  Server() : store(io, StoreServer::Options{}), look(io) {}

  // REQUIRES: the thread is not running yet.
  Outcome<> listen(const std::vector<SocketAddress>& on) {
    addresses = on;
    if (on.empty()) return Done{};
    auto opened = StoreListener::open(io, store, on);
    if (!opened) return failed(ErrorCode::environment, opened.error().message);
    listeners = std::move(*opened);
    return Done{};
  }

  void start(const Contents& given) {
    store.open(1);
    store.put(kHostNonceKey, std::to_string(nonce));
    put_all(given);
    thread = quiet_thread([this] {
      const auto keep = boost::asio::make_work_guard(io);
      io.run();
    });
  }

  void put_all(const Contents& given) {
    for (const auto& [key, value] : contents)
      store.put(key, "");
    contents = given;
    for (const auto& [key, value] : contents)
      store.put(key, value);
  }

  // Clears the contents: clients that connect from now on may belong to the next job here.
  void retired() {
    {
      const std::lock_guard lock(mutex);
      if (phase != Phase::retired) return;
    }
    put_all({});
    look_whether_needed();
  }

  void look_whether_needed() {
    const std::lock_guard lock(mutex);
    if (phase != Phase::retired) return;
    if (store.counters().connections == 0) {
      listeners.clear();
      store.close();
      phase = Phase::closed;
      changed.notify_all();
      io.stop();  // Ends the thread; the next store frees the rest.
      return;
    }
    call_after(look, kRetiredLook, [this] { look_whether_needed(); });
  }

  bool take_up_again() {
    const std::lock_guard lock(mutex);
    if (phase == Phase::retired) phase = Phase::serving;
    return phase == Phase::serving;
  }

  bool is_closed() {
    const std::lock_guard lock(mutex);
    return phase == Phase::closed;
  }

  std::vector<SocketAddress> addresses;  // As requested.
  Contents contents;                     // Set while serving; used by the thread.
  const uint64_t nonce = random_value<uint64_t>() | 1;
  boost::asio::io_context io{1};
  StoreServer store;
  std::vector<std::unique_ptr<StoreListener>> listeners;
  boost::asio::steady_timer look;
  std::mutex mutex;  // Guards phase.
  std::condition_variable changed;
  Phase phase = Phase::serving;
  std::thread thread;
};

namespace {

// Never destroyed: their threads run until the process ends.
struct RetiredStores {
  std::mutex mutex;
  std::vector<std::shared_ptr<HostStore>> stores;
};

RetiredStores& retired_stores() {
  static auto* const stores = new RetiredStores;
  return *stores;
}

}  // namespace

HostStore::HostStore(std::unique_ptr<Server> server) : server_(std::move(server)) {}

HostStore::~HostStore() {
  if (in_forked_child()) {
    // The thread to join exists only in the parent, and locks that it held stay held.
    static_cast<void>(server_.release());
    return;
  }
  server_->io.stop();
  server_->thread.join();
}

Outcome<std::shared_ptr<HostStore>> HostStore::serve(const std::vector<SocketAddress>& addresses,
                                                     const Contents& contents) {
  RetiredStores& retired = retired_stores();
  {
    const std::lock_guard lock(retired.mutex);
    for (auto store = retired.stores.begin(); store != retired.stores.end(); ++store) {
      const bool same = !addresses.empty() && (*store)->server_->addresses == addresses &&
                        addresses.front().port != 0;
      if (!same || !(*store)->server_->take_up_again()) continue;
      std::shared_ptr<HostStore> found = std::move(*store);
      retired.stores.erase(store);
      boost::asio::post(found->server_->io,
                        [server = found->server_.get(), contents] { server->put_all(contents); });
      return found;
    }
    std::erase_if(retired.stores, [](const auto& store) { return store->server_->is_closed(); });
  }
  try {
    auto server = std::make_unique<Server>();
    if (Outcome<> listening = server->listen(addresses); !listening)
      return tl::unexpected(listening.error());
    server->start(contents);
    return std::shared_ptr<HostStore>(new HostStore(std::move(server)));
  } catch (const std::system_error& error) {
    return cannot_host(call_failed("starting a thread", error.code().value()));
  } catch (const boost::system::system_error& error) {
    return cannot_host(error.code().message());
  }
}

uint16_t HostStore::port() const {
  return server_->listeners.empty() ? uint16_t{0} : server_->listeners.front()->port();
}

bool HostStore::was_exhausted() const {
  return std::ranges::any_of(server_->listeners,
                             [](const auto& listener) { return listener->pauses() > 0; });
}

uint64_t HostStore::nonce() const {
  return server_->nonce;
}

Outcome<StoreClient> HostStore::connect(Duration timeout) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return failed(ErrorCode::system, fmt::format("cannot connect to the store of this process: {}",
                                                 std::strerror(errno)));
  }
  boost::asio::post(server_->io,
                    [server = server_.get(), fd = ends[1]] { server->store.adopt(fd); });
  return StoreClient::over(ends[0], "of rank 0 (this process)", timeout);
}

void HostStore::retire(std::shared_ptr<HostStore> store) {
  static std::once_flag once;
  std::call_once(once, [] { std::atexit(wait_for_retired); });
  Server* const server = store->server_.get();
  {
    const std::lock_guard lock(server->mutex);
    server->phase = Server::Phase::retired;
  }
  RetiredStores& retired = retired_stores();
  const std::lock_guard lock(retired.mutex);
  std::erase_if(retired.stores, [](const auto& other) { return other->server_->is_closed(); });
  retired.stores.push_back(std::move(store));
  boost::asio::post(server->io, [server] { server->retired(); });
}

// Waits for ranks that read answers: the fastest rank's exit must not be the slowest one's error.
void HostStore::wait_for_retired() {
  if (in_forked_child()) return;
  const auto until = std::chrono::steady_clock::now() + kExitWait;
  RetiredStores& retired = retired_stores();
  const std::lock_guard lock(retired.mutex);
  for (const std::shared_ptr<HostStore>& store : retired.stores) {
    Server& server = *store->server_;
    std::unique_lock phase(server.mutex);
    server.changed.wait_until(phase, until, [&] { return server.phase == Server::Phase::closed; });
  }
}

}  // namespace muster::worker
