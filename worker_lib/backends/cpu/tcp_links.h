// The links of a group on several nodes: one connection for every ordered pair of ranks that
// communicates, opened by the sender on its first write; TCP to other nodes, an abstract Unix
// socket within a node. Collectives and transfers have separate sets, so that neither blocks.
//
// Used by one thread at a time; deliver() and wake() from any.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include <poll.h>

#include "rendezvous/base/event_fd.h"
#include "worker_lib/backends/cpu/links.h"
#include "worker_lib/backends/cpu/tcp_acceptor.h"
#include "worker_lib/members.h"

namespace muster::worker {

class SocketLinks final : public ByteLinks {
 public:
  // `addresses`: by group rank; outlives the links, like `members`. `secret`: the job's.
  static Outcome<std::unique_ptr<SocketLinks>> make(Purpose purpose, const Members& members,
                                                    const std::vector<ListenAddress>& addresses,
                                                    const std::string& secret);

  // Takes a connection on which `from` writes to us.
  void deliver(int from, Socket connection);

  Outcome<size_t> write(int peer, std::span<const iovec> parts) override;
  Outcome<size_t> read(int peer, std::span<const iovec> parts) override;
  size_t peek(int peer, std::span<std::byte> to) override;
  bool ended(int peer) const override { return ins_[static_cast<size_t>(peer)].ended; }
  void arm(const Interest& interest) override;
  void sleep(Deadline until, bool patient) override;
  void wake() override { raise_event(event_.get()); }

 private:
  struct Out {
    Socket socket;
    bool connecting = false;
    bool is_proved = false;  // The listener has proved itself.
    bool is_open = false;    // The listener has admitted us.
    int tries = 0;           // Earlier connections that ended before that.
    std::string output;      // Unsent bytes of the handshake.
    LinkChallenge challenge;
    size_t heard = 0;  // Bytes received of `challenge`.
    LinkTerms terms;
  };
  struct In {
    Socket socket;
    bool ended = false;
  };

  SocketLinks(Purpose purpose, const Members& members, const std::vector<ListenAddress>& addresses,
              std::string secret);
  Outcome<bool> open(int peer, Out& out);
  void begin_greeting(int peer, Out& out) const;
  Outcome<bool> hear(int peer, Out& out) const;
  Outcome<bool> prove(int peer, Out& out) const;
  Outcome<bool> greet(int peer, Out& out);
  void take_delivered();
  Failure lost(int peer, int error) const;

  const Purpose purpose_;
  const Members& members_;
  const std::vector<ListenAddress>& addresses_;
  const std::string secret_;
  std::vector<Out> outs_;
  std::vector<In> ins_;
  UniqueFd event_;
  std::vector<pollfd> polled_;

  std::mutex mutex_;
  std::vector<std::pair<int, Socket>> delivered_;  // Guarded by mutex_.
  std::atomic<bool> has_delivered_{false};
};

}  // namespace muster::worker
