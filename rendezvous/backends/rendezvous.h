// The single interface of all ways in which the agents of a job meet (one node alone, a host at an
// endpoint, a file on a shared disk, etcd). The agent reports what its workers do; its handlers get
// rounds, stops and the end.
//
// A Rendezvous owns a thread for sockets, leases and the store, so that neither a stalled disk
// under the agent's loop nor a busy store under the workers can cost a node its lease. All
// functions are called on the agent's thread; all handlers are called there too (posted to `loop`),
// in order, never from inside one of these functions, and never after the destructor.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "rendezvous/etcd/etcd_options.h"
#include "rendezvous/membership/agent_protocol.h"
#include "rendezvous/membership/client_check.h"
#include "rendezvous/membership/member.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/net/places.h"

namespace muster {

struct RendezvousOptions {
  enum class Way { solo, endpoint, known_host, file, etcd };
  Way way = Way::solo;

  std::string job_id;
  // endpoint: its name or address, as typed. known_host: that of node rank 0, or its addresses with
  // commas between them. file: the path. solo: MASTER_ADDR; empty: 127.0.0.1. If it is an address
  // or localhost, the store listens there; if another name, on all addresses. It admits this
  // machine only.
  std::string host;
  int port = 0;  // endpoint and solo: 0 is any free one; solo: a fresh one for each round.
  std::optional<EtcdOptions> etcd;
  std::vector<uint16_t> ports;     // known_host: the host takes the first that is free.
  std::optional<bool> is_host;     // The user's choice (torchrun's is_host; static: node rank 0).
  bool fixed_master_addr = false;  // static: MASTER_ADDR is `host` as typed.
  std::optional<int> worker_port;  // The workers' store listens here instead (0: a free port).
  std::optional<std::string> local_addr;
  std::string interface;  // --iface
  std::string token;      // Empty: none.
  // Who may use the store besides the members; `users` is called on the rendezvous' thread. `local`
  // is not used.
  ClientCheck::Options clients;
  size_t store_bytes_max = size_t{1} << 30;     // Keys and values.
  size_t connections_max = Places::kUnlimited;  // Open to this node at a time.
  membership::Join join;     // Our identity, without agent and what a connection adds.
  membership::Judge judge;   // Used if this node hosts; called on the rendezvous' thread.
  Duration reach_timeout{};  // Give up after this long without a host; zero: the join time-out.
};

class Rendezvous {
 public:
  using Handlers = member::Handlers;

  virtual ~Rendezvous() = default;

  // What happens on this node.
  using News = std::variant<member::ReadyForRound, member::WorkersDone, member::WorkerFailed,
                            member::EvidenceFound, member::Testified, member::Leaving>;
  // The first ReadyForRound starts the rendezvous. Leaving with a signal is answered by
  // leave_announced, and has to be repeated with reaped = true.
  virtual void tell(News news) = 0;
  // Sends to another node of the epoch, or to all; `at` is in our clock. May be lost: see
  // PROTOCOL.md. REQUIRES: at most kDatagramBytesMax of payload.
  virtual void send(membership::Datagram /*datagram*/) {}
  // Returns a line on what this node waits for; callable at any time.
  virtual std::string status() = 0;
  // Calls `done` within a second with all nodes of the job, as its host sees them: those of the
  // round by rank, then the others; with an empty list if the host is not reached.
  virtual void nodes(std::function<void(std::vector<membership::NodeLine>)> done) = 0;
  // Returns our address towards the other nodes, for the choice of a network interface: our end of
  // the connection to the host. Empty before the first round, and for one node alone.
  virtual std::string address_towards_peers() { return {}; }
  // Says goodbye, then calls `closed`: at once for a plain member; a host stays as long as other
  // agents need it. After this call no handler but `say` is called.
  virtual void close(std::function<void()> closed) = 0;
};

// Fails on a port that is taken or an unreadable path.
Result<std::unique_ptr<Rendezvous>> make_rendezvous(boost::asio::io_context& loop,
                                                    RendezvousOptions options,
                                                    Rendezvous::Handlers handlers);

}  // namespace muster
