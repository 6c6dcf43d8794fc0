// A port that serves only the store. Accepts in batches and resolves no names, so a thousand new
// clients delay the established ones by less than a millisecond. Without descriptors it pauses
// instead of spinning; without places, each new client evicts one that has not sent VALIDATE. One
// thread: the io_context's. The server must outlive the listener.
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
  // Binds as listen_on() does; returns a listener per address. `places`: null for no limit.
  static Result<std::vector<std::unique_ptr<StoreListener>>> open(
      boost::asio::io_context& io, StoreServer& server, const std::vector<SocketAddress>& addresses,
      const std::shared_ptr<Places>& places = {});
  StoreListener(StoreListener&&) = delete;
  ~StoreListener();

  uint16_t port() const { return port_; }
  // Returns how often accepting paused for lack of descriptors, memory or places. Any thread.
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
