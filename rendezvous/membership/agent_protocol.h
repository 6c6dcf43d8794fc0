// The messages between agents and the host of the rendezvous: plain values and their wire format,
// which rendezvous/membership/PROTOCOL.md describes. Pure; decoding treats its input as hostile
// (every length has a limit, nothing is interpreted as code).
//
// Both directions are level-triggered: a Report is all that the host has to know of an agent now,
// an Order all that an agent has to do now. Either may be lost, repeated or late: the newest
// sequence number counts, and a sender without an answer repeats it. So a lost connection costs
// only the time to open a new one. If the job has a token, each frame from the Join on carries a
// seal (frame_seal.h), by which each side also proves that it knows the token.
//
//   agent                             host
//   magic, Hello{job, nonce}          ─▶
//                                     ◀─   Challenge{nonce}            (or Refused)
//   Join{agent, slots}                ─▶
//                                     ◀─   Welcome{lease}              (or Refused)
//   Report{ready}                     ─▶
//                                     ◀─   Order{round 7, your ranks, the store}
//   Report{running 7}, repeated       ─▶
//                                     ◀─   Alive, each heartbeat
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/mac.h"
#include "rendezvous/base/time.h"
#include "rendezvous/membership/frame_seal.h"

namespace muster::membership {

// First bytes of an agent's connection; the version follows in the Hello.
inline constexpr std::string_view kMagic = "MSTR";
inline constexpr uint16_t kProtocolVersion = 15;

inline constexpr size_t kJobIdBytesMax = 1024;
inline constexpr size_t kNameBytesMax = 1024;  // Host names, addresses, roles.
inline constexpr size_t kTextBytesMax = 4096;  // Lines for people.
// Evidence of a node on its workers, and what a verdict shows: opaque to the rendezvous.
inline constexpr size_t kDetailBytesMax = 262144;
inline constexpr size_t kFrameBytesMax = 524288;
// Keep the answer to a Query far below the limit of unsent bytes, which disconnects an agent.
inline constexpr size_t kStateBytesMax = 256;
inline constexpr int kLinesInPart = 256;
inline constexpr size_t kNodesBytesMax = size_t{1} << 20;
inline constexpr size_t kDatagramBytesMax = 16384;  // The payload's.
// Frame limit until the peer has proved that it knows the token: enough for a Hello and a Join.
inline constexpr size_t kStrangerFrameBytesMax = 8192;

// Keep sums of slots and of epochs far from the limits of their types, whatever an agent sends.
inline constexpr int kNodesMax = 524287;
inline constexpr int kSlotsMax = 4096;
inline constexpr int kSignalMax = 64;            // Linux's highest.
inline constexpr int kCountMax = 1'000'000'000;  // Restarts, membership changes.
inline constexpr uint64_t kEpochMax = uint64_t{1} << 48;

// Agents report at least this often, so that a long lease delays no verdict about other nodes.
inline constexpr Duration kHeartbeatMax = std::chrono::seconds{1};
// After this long without a sign of life an agent reconnects, and a node outside a round is lost.
inline constexpr Duration kSilenceMax = std::chrono::seconds{3};

using Epoch = uint64_t;  // Number of a round. 0: none yet.
using Nonce = std::array<uint8_t, 16>;

// One life of one agent process: random, so that a restarted agent is never taken for the old one.
struct AgentId {
  uint64_t high = 0;
  uint64_t low = 0;
  friend auto operator<=>(const AgentId&, const AgentId&) = default;
};

// ---- what an agent is; sent once per connection

struct Hello {
  uint16_t version = kProtocolVersion;
  std::string job_id;
  Nonce nonce{};
  bool only_this_job = false;  // Any other job's host must hang up.
  friend bool operator==(const Hello&, const Hello&) = default;
};

struct Join {
  AgentId agent;
  std::string host_name;
  std::string machine;           // machine_identity() of base/machine.h.
  std::optional<int> node_rank;  // --node-rank, if given.
  int slots = 1;                 // Workers on this node.
  std::string role;
  std::string program;     // Its base name, "-m MODULE", "sh -c"; one for each role.
  std::string arguments;   // Digest of the program's arguments.
  std::string dialled;     // The host's address as reached by this agent.
  std::string advertised;  // Its own address on that connection (or --local-addr).
  bool is_host = false;    // It runs in the host's own process.
  // That connection's ends as seen here ("10.0.0.7:41234"); behind NAT the host sees others.
  std::string own_end;
  std::string host_end;
  bool knows_owners = false;  // It can answer a WhoseIs: its kernel shows owners.

  // The job as this node was configured. All nodes must agree on the number of nodes.
  int nodes_min = 1;
  int nodes_max = 1;
  int spares = 0;
  int max_restarts = 0;
  std::optional<int> max_membership_changes;
  Duration last_call{};
  Duration join_timeout{};
  Duration lease{};

  // What the agent knows of the past, from which a returned host learns the state of the job.
  Epoch last_epoch = 0;
  // The host that numbered it: a restarted host that no old agent has joined starts again at 1, so
  // a number alone names no round.
  uint64_t last_instance = 0;
  int last_rank = -1;  // Node rank in that epoch.
  int last_nodes = 0;  // Nodes in that epoch.
  int restarts = 0;    // Taken from the budget so far.
  int changes = 0;     // Membership changes so far.
  friend bool operator==(const Join&, const Join&) = default;
};

// True if the job needs all of its nodes and has no spares.
inline bool is_fixed(const Join& job) {
  return job.nodes_min == job.nodes_max && job.spares == 0;
}

// A node's first failure in an epoch, in brief; it makes the host end the epoch.
struct NodeFailure {
  int rank = 0;  // Global.
  int local_rank = 0;
  int exit_code = 1;   // What the launcher would exit with: 1..255.
  int signal = 0;      // The one that killed the worker; 0: none.
  bool final = false;  // Must not be restarted (the program cannot be executed, the user said so).
  std::string sentence;  // "exited with 1"
  Instant at{};          // Time of observation, in the host's clock.
  Duration at_error{};   // The error of that conversion.
  friend bool operator==(const NodeFailure&, const NodeFailure&) = default;
};

// What a node's workers left behind in an epoch: input for the verdict.
struct Evidence {
  Instant since{};         // Origin of the times in `detail`, in the host's clock.
  Duration since_error{};  // The error of that conversion.
  std::string detail;
  friend bool operator==(const Evidence&, const Evidence&) = default;
};

// The failure that ended an epoch: the judge's answer for all nodes.
struct Verdict {
  int rank = 0;  // Global.
  int local_rank = 0;
  int node_rank = 0;
  std::string host_name;
  int exit_code = 1;     // The launchers' exit code if it ends the job: 1..255.
  int signal = 0;        // See NodeFailure.
  std::string sentence;  // "exited with 1: ValueError: boom"
  std::string detail;    // What the final output, or the restart line, shows.
  friend bool operator==(const Verdict&, const Verdict&) = default;
};

enum class Phase : uint8_t {
  ready = 0,      // Nothing of an earlier epoch is alive here; wants a round.
  running = 1,    // Workers of `epoch` are being started or run.
  stopping = 2,   // Workers of `epoch` are being stopped.
  done = 3,       // All workers of `epoch` have exited with 0.
  leaving = 4,    // This node leaves (on a signal); its workers are being stopped or are gone.
  testified = 5,  // Nothing of `epoch` is alive here, all evidence is sent; wants no round yet.
};

// All that the host has to know of an agent now. Sent on every change and with each heartbeat.
struct Report {
  uint64_t sequence = 0;  // Grows with every report of this agent, over all connections.
  uint64_t order = 0;     // The newest Order that was processed.
  Epoch epoch = 0;        // The one that `phase` is about; ready: the newest that has ended here.
  Phase phase = Phase::ready;
  bool reaped = true;  // Nothing of any epoch is alive here; always true if ready.
  int signal = 0;      // The cause of leaving.
  // The signal went to all processes of this node (an engine's stop); other nodes may get it too.
  bool to_all = false;
  std::optional<NodeFailure> failure;  // `epoch`'s; repeated until the host has ended that epoch.
  std::optional<Evidence> evidence;    // `epoch`'s, once it is over here; repeated until processed.
  friend bool operator==(const Report&, const Report&) = default;
};

// The last message of an agent that processed the End, or has left for good.
struct Goodbye : Nothing {};

// Asks for all nodes of the job, for a user; answered by Nodes. Nothing of the rendezvous depends
// on it: it renews no lease, and gets an empty answer if sent too often.
struct Query {
  uint64_t id = 0;  // Repeated in the answer.
  friend bool operator==(const Query&, const Query&) = default;
};

// Goes to other nodes of the epoch through the host, to which the payload is opaque. May be lost,
// is never duplicated; datagrams between the same two nodes keep their order.
struct Datagram {
  Epoch epoch = 0;
  int to = 0;           // Node rank; -1: all other nodes of the epoch.
  Instant at{};         // Time of sending, in the host's clock.
  Duration at_error{};  // The error of that conversion.
  std::string payload;  // At most kDatagramBytesMax.
  friend bool operator==(const Datagram&, const Datagram&) = default;
};

// The answer to a WhoseIs.
struct Belongs {
  uint64_t id = 0;
  bool to_job = false;  // The client's user is one of the job's on that machine.
  friend bool operator==(const Belongs&, const Belongs&) = default;
};

// ---- what the host sends

struct Challenge {
  Nonce nonce{};
  bool token = false;  // True if this host requires a token.
  friend bool operator==(const Challenge&, const Challenge&) = default;
};

struct Welcome {
  uint64_t host_instance = 0;  // Random: a host that returns has another one.
  Mac worker_seed{};           // The job's; see worker_secret() in job_token.h.
  Duration lease{};
  Duration heartbeat{};
  friend bool operator==(const Welcome&, const Welcome&) = default;
};

enum class RefusalKind : uint8_t {
  version = 0,        // Another protocol version.
  token = 1,          // Wrong or missing token.
  contradiction = 2,  // Started with other settings than the job.
  rank_taken = 3,     // Another node has this --node-rank.
  closed = 4,         // The job of this id has ended.
  full = 5,           // A limit of the host is reached.
};
struct Refused {
  RefusalKind kind = RefusalKind::closed;
  std::string text;  // One line for the user: why, and what to do.
  friend bool operator==(const Refused&, const Refused&) = default;
};

// One node's part of a round. Its size does not depend on the number of nodes.
struct Round {
  Epoch epoch = 0;
  int node_rank = 0;
  int nodes = 1;
  int base_rank = 0;
  int world_size = 1;
  int base_role_rank = 0;
  int role_world_size = 1;
  std::string master_addr;
  int master_port = 0;
  int restarts = 0;  // Taken from the budget so far: TORCHELASTIC_RESTART_COUNT.
  int changes = 0;
  std::optional<Verdict> before = {};  // Why the previous epoch failed, if it did, in brief.
  std::string worker_secret = {};      // Not on the wire: the agent's side fills it in.
  friend bool operator==(const Round&, const Round&) = default;
};

enum class StopWhy : uint8_t {
  failure = 0,                // A worker failed somewhere.
  lost = 1,                   // A node was lost.
  left = 2,                   // A node leaves (a signal there).
  joined = 3,                 // A node joined.
  host = 4,                   // The host returned and knows nothing of this epoch.
  left_by_signal_to_all = 5,  // Like `left`, but every process of the job may get the signal.
};
struct Stop {
  Epoch epoch = 0;
  StopWhy why = StopWhy::failure;
  std::string text;  // One line: which node, what happened, what happens next.
  friend bool operator==(const Stop&, const Stop&) = default;
};

// The node is in no round.
struct Wait {
  bool spare = false;
  std::string text;  // "3 of 4 nodes; missing: node rank 2; gives up in 581 s"
  friend bool operator==(const Wait&, const Wait&) = default;
};

enum class EndWhy : uint8_t {
  success = 0,
  failed = 1,   // A worker failed and no restart was left: `verdict`.
  stopped = 2,  // Too few nodes were left after a signal: `signal`.
  lost = 3,     // Too few nodes were left, or the membership budget was spent.
  timeout = 4,  // The nodes did not meet in time.
};
struct End {
  EndWhy why = EndWhy::success;
  int exit_code = 0;
  int signal = 0;
  int node_rank = -1;     // The culprit's; -1: none.
  std::string host_name;  // The culprit's.
  std::string text;       // One line.
  std::optional<Verdict> verdict = {};
  int restarts = 0;
  int changes = 0;
  // The node that prints this where all share a console: the lowest rank still connected; -1: none.
  int teller = -1;
  friend bool operator==(const End&, const End&) = default;
};

// All that an agent has to do now.
struct Order {
  using What = std::variant<Wait, Round, Stop, End>;
  uint64_t sequence = 0;  // Grows with every order of this host instance.
  What what;
  friend bool operator==(const Order&, const Order&) = default;
};

struct Alive {           // The host's answer to each Report: its heartbeat.
  uint64_t report = 0;   // The newest Report that was processed.
  uint64_t answers = 0;  // The Report that this answers.
  Instant clock{};       // The host's clock at that time.
  friend bool operator==(const Alive&, const Alive&) = default;
};

// One node as the host knows it, for people.
struct NodeLine {
  int node_rank = -1;  // -1: the node is in no round.
  std::string host;    // The node's own name: may contain anything.
  int first_rank = 0;  // The first of its workers' ranks.
  int workers = 0;
  std::string state;  // "running", "spare", "silent for 1.2 s"
  friend bool operator==(const NodeLine&, const NodeLine&) = default;
};

// Part of the answer to a Query; the parts are sent in order.
struct Nodes {
  uint64_t query = 0;
  bool last = true;
  int left_out = 0;             // Number of omitted nodes; set in the last part.
  std::vector<NodeLine> lines;  // At most kLinesInPart.
  friend bool operator==(const Nodes&, const Nodes&) = default;
};

// Another node's Datagram.
struct Delivered {
  Epoch epoch = 0;
  int from = 0;  // Node rank.
  Instant at{};
  Duration at_error{};
  std::string payload;
  friend bool operator==(const Delivered&, const Delivered&) = default;
};

// Asks whether the user of a connection to the job's store from the agent's address may use the
// store; answered by a Belongs. As in RFC 1413, but both sides know each other.
struct WhoseIs {
  uint64_t id = 0;     // Repeated in the answer.
  std::string client;  // The client's end: "10.0.0.7:41236".
  std::string store;   // The store's end: "10.0.0.1:29400".
  friend bool operator==(const WhoseIs&, const WhoseIs&) = default;
};

using AgentMessage = std::variant<Hello, Join, Report, Goodbye, Query, Datagram, Belongs>;
using HostMessage =
    std::variant<Challenge, Welcome, Refused, Order, Alive, Nodes, Delivered, WhoseIs>;

// Appends one frame: u32 length of what follows, u8 type, fields. Little-endian.
// REQUIRES: within the limits above (longer texts and details are cut at a UTF-8 boundary).
void encode(const AgentMessage& message, std::string& out);
void encode(const HostMessage& message, std::string& out);

// Splits a byte stream into messages. None follow an error: the caller closes the connection.
template <typename Message>
class FrameReader {
 public:
  explicit FrameReader(size_t frame_bytes_max = kFrameBytesMax)
      : frame_bytes_max_(frame_bytes_max) {}

  // Raises the limit for a peer that has authenticated itself.
  void allow_frames_of(size_t bytes_max) { frame_bytes_max_ = bytes_max; }

  // Requires this seal on every further frame, but not on a Refused: its host may lack the token.
  void expect(const FrameSeal& seal) { seal_ = seal; }
  // True if the newest message carried the seal.
  bool is_sealed() const { return is_sealed_; }
  // True after a wrong seal: the frame was not sent by the other side, or not like this.
  bool is_seal_broken() const { return is_seal_broken_; }

  // Adds received bytes (without the magic).
  void feed(std::string_view bytes);
  // nullopt: more bytes are needed. An Error: a wrong seal, or not this protocol.
  Result<std::optional<Message>> next();

 private:
  tl::unexpected<Error> break_off(Error error);
  bool is_seal_right(std::string_view frame, uint8_t type);

  size_t frame_bytes_max_;
  std::optional<FrameSeal> seal_;
  bool is_sealed_ = false;
  bool is_seal_broken_ = false;
  std::string buffer_;
  size_t consumed_ = 0;  // Bytes of buffer_ that were returned.
  bool broken_ = false;
};
extern template class FrameReader<AgentMessage>;
extern template class FrameReader<HostMessage>;

// Returns the answer to a Query in parts: as many whole lines as fit into kNodesBytesMax.
std::vector<Nodes> nodes_answer(uint64_t query, std::vector<NodeLine> lines);

}  // namespace muster::membership
