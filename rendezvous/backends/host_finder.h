// How a node finds the host of its job, or finds out that it has to be it. A Dialler that may,
// while it dials, come to host: then it hands a listener over, and dials its own process from then
// on.
#pragma once

#include <functional>
#include <memory>

#include "rendezvous/membership/member_client.h"
#include "rendezvous/net/listener.h"

namespace muster {

class HostFinder : public Dialler {
 public:
  using OnHost = std::function<void(std::unique_ptr<Listener>)>;

  // This node hosts no longer; `done` is called once nobody will find it, from the loop or at once.
  virtual void retire(std::function<void()> done) { done(); }
};

}  // namespace muster
