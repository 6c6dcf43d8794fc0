// A Dialler that finds the host of a node's job, or becomes it while it dials: then it hands over a
// listener, and dials its own process from then on. The Hosting machine decides; a subclass for
// each way to meet connects, listens and asks the keeper, if there is one. One thread: the loop's.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/backends/hosting.h"
#include "rendezvous/membership/member_client.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/net/connect.h"
#include "rendezvous/net/drive.h"
#include "rendezvous/net/listener.h"

namespace muster {

class HostFinder : public Dialler {
 public:
  struct Options {
    int port = 0;                 // 0: any free one.
    std::optional<bool> is_host;  // nullopt: any node that can.
    membership::AgentId agent;    // This process's.
    Duration dial_limit = std::chrono::seconds(5);
    // Detects a peer that is gone for good; leases, no longer than this, detect a silent one.
    Duration dead_peer_after = std::chrono::seconds(30);
    LookUp look_up = look_up_by_getaddrinfo;
    ListenOptions listen;
  };
  // How this node hosts from now on.
  struct Post {
    std::unique_ptr<Listener> listener;
    uint64_t instance = 0;  // The one in the keeper's record; 0: no keeper.
    membership::Past past;
    std::optional<IpAddress> endpoint_here;  // What the endpoint's name resolves to on this node.
  };
  struct Handlers {
    std::function<void(Post)> host;
    std::function<void()> step_down;  // This node does not host any more.
    std::function<void(membership::Epoch)> granted;
    std::function<void()> ending_granted;
    std::function<void(const std::string&)> say;
  };

  void dial(bool reaped, std::function<void(DialOutcome)> done) final;
  void cancel() override;
  void answered_by_another() override { post(hosting::Doubted{true}); }
  void hung_up() override { post(hosting::Doubted{false}); }

  // Our host wants to form this round; answered by `granted`, once it may.
  void want_round(const membership::Formed& round, uint64_t instance);
  // Our host wants to end the job like this; answered by `ending_granted`, once it may.
  void want_ending(const membership::End& end);
  // Stops hosting; calls `done`, from the loop or at once, when no node can find this host.
  void retire(std::function<void()> done);

 protected:
  HostFinder(boost::asio::io_context& io, const Options& options, Hosting::Options machine,
             Handlers handlers);

  // Connects to the host, or to the endpoint; answered by on_called().
  virtual void call(const HostRecord& host) = 0;
  // Listens and takes the host's place; answered by on_won() or on_not_taken().
  virtual void take(const Keeper::Seen& seen) = 0;
  // The keeper's errands; see hosting.h.
  virtual void look() {}
  virtual void await(const hosting::Await& /*wish*/) {}
  virtual void beat() {}
  virtual void write(const hosting::Write& /*change*/) {}
  virtual void leave() { post(hosting::Left{}); }

  void on_called(NetResult<TcpSocket> socket);
  // `reached`: where this process reaches itself, if known already; `endpoint_here`: see Post.
  void on_won(std::unique_ptr<Listener> listener, uint64_t instance,
              std::optional<SocketAddress> reached = {},
              std::optional<IpAddress> endpoint_here = {});
  void on_not_taken(hosting::Taken::How how, Error error);
  void post(Hosting::Event event) { drive_.post(std::move(event)); }
  bool is_hosting() const { return own_host_.has_value(); }

  // Options for a way to meet without a keeper; `place` is for messages.
  static Hosting::Options without_keeper(const std::string& place);

  Deadline dial_deadline() const { return std::chrono::steady_clock::now() + dial_limit_; }

  boost::asio::io_context& io_;
  ConnectOptions connect_options_;
  Connecting connecting_;
  std::shared_ptr<int> dial_;  // A new one for each dial: answers to an older one are dropped.

 private:
  void perform(const Hosting::Effect& effect);
  void finish(DialOutcome outcome);
  void start_hosting(const hosting::Host& effect);
  void call_own_host();
  void on_retired();

  const Duration dial_limit_;
  Handlers handlers_;
  Hosting machine_;
  Drive<Hosting, hosting::Tick> drive_;
  boost::asio::steady_timer retire_timer_;
  uint64_t called_instance_ = 0;
  std::optional<TcpSocket> called_;
  Post won_;
  std::optional<SocketAddress> reached_;
  std::optional<SocketAddress> own_host_;  // Set while this node hosts.
  uint64_t own_instance_ = 0;
  std::function<void(DialOutcome)> done_;
  std::function<void()> retired_;
};

}  // namespace muster
