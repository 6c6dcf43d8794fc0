// Chooses the interface for the workers' libraries (rendezvous/net/interface_choice.h), from what
// this machine's name resolves to and its address towards the other nodes. Control loop only.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>

#include "agent/launch_spec.h"
#include "agent/process/worker_environment.h"
#include "rendezvous/net/interface_choice.h"
#include "rendezvous/net/resolve.h"

namespace muster {

class OwnInterface {
 public:
  OwnInterface(boost::asio::io_context& io, const RendezvousSpec& spec,
               const Environment& environment)
      : spec_(spec), environment_(environment), names_(io) {}

  // Runs while the nodes meet, so that it costs no time.
  void look_up_own_name();
  // Calls `next` once the name is resolved; at once if it is not needed.
  void when_own_name_is_known(std::function<void()> next);
  // `towards_peers`: our address. Returns a line about the choice; empty: none, or chosen before.
  std::string choose(const std::string& towards_peers);
  const std::optional<InterfaceExport>& choice() const { return choice_; }

 private:
  bool is_set(std::string_view variable) const {
    return environment_.contains(std::string(variable));
  }

  const RendezvousSpec& spec_;
  const Environment& environment_;
  Resolver names_;
  bool is_known_ = true;
  std::string own_name_fault_;
  std::function<void()> next_;
  std::optional<InterfaceExport> choice_;
};

}  // namespace muster
