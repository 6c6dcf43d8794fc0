// A port that serves only the store: for a store with a port of its own, and for tests. Accepts in
// batches and resolves no names, so a thousand clients that arrive at once delay the established
// ones by less than a millisecond. When descriptors run out it pauses instead of spinning; when
// places do, a client that has not sent VALIDATE goes for each that comes. One thread: the
// io_context's. The server must outlive the listener.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/error.h"
#include "rendezvous/net/listening_socket.h"
#include "rendezvous/net/places.h"
#include "rendezvous/store/store_server.h"

namespace muster {

class StoreListener {
 public:
  // Binds the addresses as listen_on() does, all on one port, with a listener for each. `places`:
  // for their connections; null: no limit.
  static Result<std::vector<std::unique_ptr<StoreListener>>> open(
      boost::asio::io_context& io, StoreServer& server, const std::vector<SocketAddress>& addresses,
      const std::shared_ptr<Places>& places = {});
  StoreListener(const StoreListener&) = delete;
  StoreListener& operator=(const StoreListener&) = delete;
  ~StoreListener();

  uint16_t port() const { return port_; }
  // How often accepting had to pause for lack of descriptors or memory. Any thread.
  uint64_t pauses() const { return pauses_; }

 private:
  StoreListener(boost::asio::io_context& io, StoreServer& server, ListeningSocket bound,
                std::shared_ptr<Places> places);

  void arm();
  void accept_batch();
  void pause();

  StoreServer& server_;
  std::shared_ptr<Places> places_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer pause_timer_;
  uint16_t port_;
  std::atomic<uint64_t> pauses_ = 0;
  std::shared_ptr<bool> alive_;
};

}  // namespace muster
