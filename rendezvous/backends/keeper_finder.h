// Finds the host through a keeper (keeper.h). The host listens on a port of its choice; the keeper
// holds its addresses and a random number. The others connect there, and accept no host without
// that number. One thread, the loop's; only a helper talks to the keeper.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>

#include "rendezvous/backends/helper_thread.h"
#include "rendezvous/backends/host_finder.h"
#include "rendezvous/backends/keeper.h"

namespace muster {

class KeeperFinder : public HostFinder {
 public:
  struct Options : HostFinder::Options {
    Options() { dial_limit = std::chrono::seconds(3); }

    std::string place;  // Named in messages.
    std::string host_name;
    std::optional<std::string> local_addr;
    std::string interface;
    Duration lease = std::chrono::seconds(4);  // The keeper's own, or the limit without a beat.
    Duration beat_every = std::chrono::seconds(1);
    bool keeper_ends_leases = false;  // It also reports changes.
  };

  KeeperFinder(boost::asio::io_context& io, std::shared_ptr<Keeper> keeper, Options options,
               Handlers handlers);
  // Does not wait for calls of the keeper.
  ~KeeperFinder() override { keeper_->cancel(); }

  // The host may be a stopped process whose kernel accepts.
  void silent() override { hung_up(); }

 private:
  void look() override;
  void await(const hosting::Await& wish) override;
  void call(const HostRecord& host) override;
  void take(const Keeper::Seen& seen) override;
  void beat() override;
  void write(const hosting::Write& change) override;
  void leave() override;
  HostRecord new_record(const Listener& listener) const;
  // Runs `work` on the helper, then posts what it returned as Answer.
  template <typename Answer, typename Work>
  void ask(Work work);

  Options options_;
  std::string machine_;
  std::shared_ptr<Keeper> keeper_;  // Shared with the helper.
  HelperThread helper_;
  HostRecord own_;                      // Set once this node hosts or has tried to.
  std::unique_ptr<Listener> listener_;  // Held until the host's place is taken.
};

}  // namespace muster
