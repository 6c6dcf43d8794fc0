// Accepts the connections of the other members: a thread authenticates each one and hands it to its
// links. It moves no data of operations.
//
// Owned by the cpu backend of a group on several nodes; ends before the links that it serves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "rendezvous/net/address.h"
#include "worker_lib/backends/backend.h"
#include "worker_lib/link_proof.h"
#include "worker_lib/members.h"
#include "worker_lib/stream_socket.h"

namespace muster::worker {

// ---- listening sockets of the members of a group, and the exchange of their addresses through the
// group's set-up store. The addresses are no secret; see link_proof.h.

// Returns an unguessable name for an abstract Unix socket.
std::string random_socket_name();

struct ListenAddress {
  SocketAddress tcp;
  std::string local;  // Name of an abstract Unix socket, for ranks of the same node.

  std::string encode() const;
  static std::optional<ListenAddress> decode(std::string_view text);
  friend bool operator==(const ListenAddress&, const ListenAddress&) = default;
};

struct Listeners {
  ListenAddress address;
  std::vector<Socket> listeners;
};

// Listens on the address that this member announces; if that is not an address of this machine
// (address translation), on all addresses.
Outcome<Listeners> open_listeners(const Peer& self);

// Use of a connection. The values go over the wire.
enum class Purpose : uint8_t { collectives = 0, transfers = 1 };

// The handshake of every connection, in host byte order, since both ends run the same program: the
// dialler's LinkHello, the listener's LinkChallenge, the dialler's proof (see link_proof.h), the
// listener's kAdmitted; then data.
struct LinkHello {
  static constexpr uint32_t kMagic = 0x4b4c554d;  // "MULK"
  uint32_t magic = kMagic;
  uint32_t version = 2;
  uint8_t purpose = 0;
  uint8_t unused[3] = {};
  int32_t from = 0;  // Group rank.
  LinkNonce nonce{};
};
static_assert(sizeof(LinkHello) == 32);

struct LinkChallenge {
  LinkNonce nonce{};
  Mac proof{};
};
static_assert(sizeof(LinkChallenge) == 48);

inline constexpr char kAdmitted = 'a';

// Returns LinkTerms::purpose for a connection with this LinkHello to the listener at `to`.
std::string link_purpose(const LinkHello& hello, const ListenAddress& to);

class Acceptor {
 public:
  using Deliver = std::function<void(int from, Socket connection)>;
  struct Options {
    int size = 0;
    std::string secret;  // The job's secret.
    Listeners open;
    // Indexed by Purpose; called on the acceptor's thread.
    Deliver deliver[2];
  };

  static Outcome<std::unique_ptr<Acceptor>> start(Options options);
  Acceptor(Acceptor&&) = delete;
  ~Acceptor();

 private:
  struct Candidate;
  explicit Acceptor(Options options);
  void serve();
  void accept_from(int listener);
  bool hear(Candidate& candidate);
  bool challenge(Candidate& candidate) const;
  void admit(Candidate& candidate);

  Options options_;
  UniqueFd stop_;  // An eventfd.
  std::vector<Candidate> candidates_;
  std::thread thread_;
};

}  // namespace muster::worker
