// Where an agent meets the others of its job: the one interface behind which every way to meet
// stands (one node alone, a host at an endpoint, a file on a shared disk; later etcd). The agent
// says what its workers do, and is told of rounds, stops and the end.
//
// A Rendezvous owns a thread of its own on which sockets, leases and the store live, so that
// neither a stalled disk under the agent's loop nor a busy store under the workers can cost a node
// its lease. All functions are called on the agent's thread; all handlers are called there too
// (posted to `loop`), in order, never from inside one of these functions, and never after the
// destructor.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "rendezvous/membership/agent_protocol.h"
#include "rendezvous/membership/member.h"
#include "rendezvous/membership/membership.h"

namespace muster {

struct RendezvousOptions {
  enum class Way { solo, endpoint, file };
  Way way = Way::solo;

  std::string job_id;
  // endpoint: its name or address, as typed. file: the path. solo: what MASTER_ADDR is to be (the
  // store listens where that leads, on all addresses if it is not clear, for this machine only);
  // empty: 127.0.0.1.
  std::string host;
  int port = 0;  // endpoint and solo: 0 takes a free one; solo: a fresh one for every round.
  std::optional<bool>
      is_host;  // endpoint: the user says who hosts (torchrun's is_host; static: node rank 0).
  bool fixed_master_addr = false;  // static: MASTER_ADDR is `host` as typed.
  std::optional<int> worker_port;  // The workers' store listens here instead (0: a free port).
  std::optional<std::string> local_addr;
  std::string interface;                 // --iface
  std::string token;                     // Empty: none.
  std::vector<std::string> store_allow;  // CIDRs; "any": no filter.
  membership::Join join;  // Who we are: everything but agent, proof, dialled, advertised, is_host.
  membership::Judge judge;   // For the day we host; called on the rendezvous' thread.
  Duration reach_timeout{};  // Without a host for so long we give up; zero: the join time-out.
};

class Rendezvous {
 public:
  struct Handlers {
    std::function<void(const membership::Round&)> round;
    std::function<void(const member::StopWorkers&)> stop;
    std::function<void()> leave_announced;
    std::function<void(const membership::End&)> ended;
    std::function<void(const Error&)> failed;  // The nodes did not meet. The last call.
    // Likewise, where the host has answered that it does without this node; none: `failed`.
    std::function<void(const Error&)> refused;
    std::function<void(const std::string&)> say;
  };

  virtual ~Rendezvous() = default;

  // Nothing of an earlier epoch is alive on this node: a round is wanted. The first call begins.
  virtual void ready() = 0;
  virtual void workers_done(membership::Epoch epoch) = 0;
  // The first failure of the epoch here, at `failure.at` of our clock.
  virtual void worker_failed(membership::Epoch epoch, membership::NodeFailure failure) = 0;
  // What the epoch's workers left behind here; before ready() or leaving(..., true).
  virtual void evidence_found(membership::Epoch epoch, membership::Evidence evidence) = 0;
  // A signal ends this node's part; answered by leave_announced. Again with reaped = true.
  virtual void leaving(int signal, bool reaped) = 0;
  // What is being waited for, in one line; any time.
  virtual std::string status() = 0;
  // All nodes of the job, as its host sees them: those of the round by their rank, then the others.
  // `done` is called within a second, with nothing where the host is not reached.
  virtual void nodes(std::function<void(std::vector<membership::NodeLine>)> done) = 0;
  // Our end of the connection to the host, for the choice of a network interface. Empty where there
  // is none, or the host is this machine and nobody else has come.
  virtual std::string address_towards_peers() { return {}; }
  // Says goodbye and calls `closed` when all is said: at once for a plain member; a host stays as
  // long as other agents need it. After it nothing but `say` is called.
  virtual void close(std::function<void()> closed) = 0;
};

// Fails when the machine refuses: a port that somebody has, an unreadable path.
Result<std::unique_ptr<Rendezvous>> make_rendezvous(boost::asio::io_context& loop,
                                                    RendezvousOptions options,
                                                    Rendezvous::Handlers handlers);

}  // namespace muster
