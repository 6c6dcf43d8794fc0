// Asks an address whether a PyTorch TCPStore server listens there: connects, says VALIDATE and
// PING, and looks for the ping's own number in the answer. One question, then the object is done
// with. A muster host knows the question by its number and hangs up, also where it serves a store,
// so that it is never taken for a stranger because it was too busy to answer an agent.
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
  // Calls back once, from the loop; not at all when the object goes first.
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
