// Probes whether a PyTorch TCPStore server listens at an address: connects, sends VALIDATE and
// PING, and looks for the ping's number in the answer. One object per probe. A muster host
// recognises the probe by its number and closes the connection, even if it serves a store, so a
// host that was too busy to answer an agent is never taken for a stranger.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "rendezvous/net/address.h"

namespace muster {

// All bytes that a probe sends.
std::string store_question();

class StoreProbe {
 public:
  // Calls back once, from the loop; not at all if the object is destroyed first.
  StoreProbe(boost::asio::io_context& io, const SocketAddress& address,
             std::function<void(bool is_store)> done);
  StoreProbe(const StoreProbe&) = delete;
  StoreProbe& operator=(const StoreProbe&) = delete;
  ~StoreProbe();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster
