// Runs a Rendezvous on a thread of its own: the agent's calls are posted to it, and its answers
// come back through the agent's loop. So everything behind this class is single-threaded and may
// call its handlers at any time. The thread blocks all signals and waits only for its own loop, so
// the destructor joins it at once; after a second it detaches one that is stuck in the kernel.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <boost/asio/io_context.hpp>

#include "rendezvous/backends/rendezvous.h"

namespace muster {

class ThreadedRendezvous : public Rendezvous {
 public:
  // Creates the Rendezvous that lives on the thread's loop; called before the thread starts.
  using MakeInner = std::function<Result<std::unique_ptr<Rendezvous>>(
      boost::asio::io_context& io, Rendezvous::Handlers handlers)>;
  static Result<std::unique_ptr<Rendezvous>> start(boost::asio::io_context& agent_loop,
                                                   Rendezvous::Handlers handlers,
                                                   const MakeInner& make_inner);
  ~ThreadedRendezvous() override;

  void tell(News news) override;
  void send(membership::Datagram datagram) override;
  std::string status() override;
  void nodes(std::function<void(std::vector<membership::NodeLine>)> done) override;
  std::string address_towards_peers() override;  // The one when the newest round formed.
  void close(std::function<void()> closed) override;

 private:
  struct Mailbox;  // Delivers to the agent.
  struct Thread;   // What the thread keeps alive, even when it is detached.

  ThreadedRendezvous(std::shared_ptr<Mailbox> mailbox, std::shared_ptr<Thread> shared);
  void run(std::function<void(Rendezvous&)> action);

  std::shared_ptr<Mailbox> mailbox_;
  std::shared_ptr<Thread> shared_;
  std::thread thread_;
  std::string last_status_;
};

}  // namespace muster
