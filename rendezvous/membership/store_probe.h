// Probes whether a PyTorch TCPStore server listens at an address: sends VALIDATE and PING, and
// looks for the ping's number in the answer. A muster host hangs up on it, even if it serves
// a store, so a host too busy to answer an agent is never taken for one. One object per probe.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "rendezvous/net/address.h"

namespace muster {

// Returns all bytes that a probe sends.
std::string store_question();

class StoreProbe {
 public:
  // Calls back once, from the loop; not at all if the object is destroyed first.
  StoreProbe(boost::asio::io_context& io, const SocketAddress& address,
             std::function<void(bool is_store)> done);
  StoreProbe(StoreProbe&&) = delete;
  ~StoreProbe();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster
