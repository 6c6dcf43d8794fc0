// Finds the host of a node's job, or finds that this node has to be it. A Dialler that may become
// the host while it dials: then it passes on a listener, and dials its own process from then on.
#pragma once

#include <functional>
#include <memory>

#include "rendezvous/membership/member_client.h"
#include "rendezvous/net/listener.h"

namespace muster {

class HostFinder : public Dialler {
 public:
  using OnHost = std::function<void(std::unique_ptr<Listener>)>;

  // This node stops hosting; calls `done` once no node will find it, from the loop or at once.
  virtual void retire(std::function<void()> done) { done(); }
};

}  // namespace muster
