// A Rendezvous over the agents' protocol: this node's MemberClient and, if this node becomes the
// host, the Coordinator of all agents. The host's own agent connects to its own port like any
// other, so there is one code path. Lives on the rendezvous' thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/backends/host_finder.h"
#include "rendezvous/backends/rendezvous.h"
#include "rendezvous/membership/coordinator.h"
#include "rendezvous/membership/member_client.h"

namespace muster {

class JoinedRendezvous : public Rendezvous {
 public:
  static Result<std::unique_ptr<Rendezvous>> make(boost::asio::io_context& io,
                                                  const RendezvousOptions& options,
                                                  Handlers handlers);

  void tell(News news) override;
  void send(membership::Datagram datagram) override;
  std::string status() override;
  void nodes(std::function<void(std::vector<membership::NodeLine>)> done) override;
  std::string address_towards_peers() override;
  void close(std::function<void()> closed) override;

 private:
  JoinedRendezvous(boost::asio::io_context& io, const RendezvousOptions& options, Handlers handlers,
                   const std::string& advertised);
  MemberClient::Options client_options(const std::string& advertised) const;
  Handlers client_handlers();
  HostFinder::Handlers finder_handlers();
  void host(HostFinder::Post post);
  void step_down();
  void wait_for_goodbye(int looks_left);
  void leave_host();

  boost::asio::io_context& io_;
  RendezvousOptions options_;
  Handlers handlers_;
  Coordinator::Options hosting_;  // Used if this node hosts.
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<HostFinder> finder_;
  MemberClient client_;
  boost::asio::steady_timer goodbye_timer_;
  bool leaves_host_ = false;
  std::function<void()> closed_;
  std::string master_addr_;  // Where the newest round's members reach the host.
  bool begun_ = false;
};

}  // namespace muster
