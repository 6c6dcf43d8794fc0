// Finds the host of a node's job, or finds that this node has to be it. A Dialler that may become
// the host while it dials: then it passes on a listener, and dials its own process from then on.
// One thread: the loop's.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include <boost/asio/io_context.hpp>

#include "rendezvous/membership/member_client.h"
#include "rendezvous/net/connect.h"
#include "rendezvous/net/listener.h"

namespace muster {

class HostFinder : public Dialler {
 public:
  struct Options {
    int port = 0;                      // 0: any free one.
    std::optional<bool> is_host;       // nullopt: any node that can.
    std::optional<uint64_t> instance;  // Of our host, where others are told of it.
    Duration dial_limit = std::chrono::seconds(5);
    // Leases detect a silent connection; this, no shorter than a lease, detects a peer that is gone
    // for good.
    Duration dead_peer_after = std::chrono::seconds(30);
    LookUp look_up = look_up_by_getaddrinfo;
    ListenOptions listen;
  };
  using OnHost = std::function<void(std::unique_ptr<Listener>)>;

  void dial(std::function<void(DialOutcome)> done) final;
  void cancel() override;
  // This node stops hosting; calls `done` once no node will find it, from the loop or at once.
  virtual void retire(std::function<void()> done) { done(); }

 protected:
  HostFinder(boost::asio::io_context& io, const Options& options, OnHost on_host);

  // The way to the host while this node is not it; ends in one of the next three.
  virtual void find() = 0;
  void finish(DialOutcome outcome);
  // Fatal for ExitCode::environment: the machine refuses.
  void fail_dial(Error error, bool refused = false);
  // We are the host. `reached` is where this process reaches itself, if that is known already.
  void host(std::unique_ptr<Listener> listener, std::optional<SocketAddress> reached = {});

  Deadline dial_deadline() const { return std::chrono::steady_clock::now() + dial_limit_; }

  boost::asio::io_context& io_;
  ConnectOptions connect_options_;
  Connecting connecting_;
  std::shared_ptr<int> dial_;  // A new one for each dial: answers to an older one are dropped.

 private:
  void call_own_host();

  const Duration dial_limit_;
  const std::optional<uint64_t> instance_;
  OnHost on_host_;
  std::optional<SocketAddress> own_host_;  // Set once we host.
  std::function<void(DialOutcome)> done_;
};

}  // namespace muster
