// The machine that decides for one job which nodes are in it: rounds, epochs, ranks, leases,
// budgets and the single verdict. It runs in the host's process, one machine per job id. Pure: it
// is told the time, connections and reports, and asks for messages to be sent and the store to be
// opened and closed. The coordinator performs that; the simulator runs thousands of agents against
// the same code.
//
//              enough ready              failure, loss, leave, join           all of the epoch
//                                                                             reaped,
//   forming ───────────────▶ running ───────────────────────────▶ stopping ── left or lost ──┐
//      ▲                        │ all done                                                   │
//      │                        ▼                                                            │
//      │                      ended ◀──────── budget spent, or fewer than MIN left ──────────┤
//      └─────────────────────────────────────────────────────────────────── else ────────────┘
//
// The end of an epoch is decided at once, its reason once all of the epoch is over: by then every
// node has reported what its workers left behind, every loss is known, and a judge (passed in by
// the owner, since the nodes' evidence is opaque here) names the failure that explains the others.
// A round forms as soon as MAX nodes are ready, or MIN when the last call is over (counted from the
// first join), or, after a round that was stopped, when all of its remaining nodes are ready. The
// store is open while an epoch runs or stops, and after a success for up to store_linger.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/membership/agent_protocol.h"

namespace muster {

namespace membership {

using ConnectionId = uint64_t;

// What the judge is told of one node of a failed epoch. Instants are in the host's clock.
struct Testimony {
  std::string host_name;
  int node_rank = 0;
  int base_rank = 0;  // The global rank of its first worker.
  int workers = 1;
  std::optional<NodeFailure> failure;  // If it reported one.
  std::optional<Evidence> evidence;    // What its workers left behind.
  // For a node that was lost or left: when it was last heard, and when it was known to be gone.
  bool gone = false;
  Instant last_heard{};
  Instant gone_by{};
};

struct Judgement {
  Verdict verdict;
  std::string brief;          // The verdict's detail, short enough for a restart line.
  bool by_departure = false;  // The loss or departure of a node explains all failures.
};

// What is known of a job before any node has joined: its newest round, which another host formed.
struct Past {
  Epoch epoch = 0;               // 0: there was none.
  int nodes = 0;                 // How many of its nodes may still come; 0: not known.
  std::vector<AgentId> members;  // By node rank.
  int restarts = 0;
  int changes = 0;
};

// The newest round of this host.
struct Formed {
  Epoch epoch = 0;
  std::vector<AgentId> members;  // By node rank.
  int restarts = 0;
  int changes = 0;
  friend bool operator==(const Formed&, const Formed&) = default;
};

// Pure. `testimonies`: those of all nodes of the epoch, by node rank.
using Judge = std::function<Judgement(const std::vector<Testimony>& testimonies)>;

// ---- events

// An authenticated agent asks to join. A second Join of the same agent on another connection
// replaces the first connection.
struct Joined {
  ConnectionId connection = 0;
  Join join;
};
struct Reported {
  ConnectionId connection = 0;
  Report report;
};
struct Parted {  // A Goodbye.
  ConnectionId connection = 0;
};
struct Disconnected {
  ConnectionId connection = 0;
};
// The store of `epoch` now listens on `port` (the answer to OpenStore), or could not be opened.
struct StoreOpened {
  Epoch epoch = 0;
  int port = 0;
};
struct StoreFailed {
  Epoch epoch = 0;
  Error error;
};
// What to tell waiting nodes about the other jobs that wait at this host, since a node with a wrong
// job id waits as a job of its own, and about this host, which others may not find. Empty: nothing.
struct Neighbours {
  std::string text;
};
struct Tick {};

// ---- effects

// The owner fills in what a Welcome says of the host.
struct Send {
  ConnectionId connection = 0;
  HostMessage message;
  friend bool operator==(const Send&, const Send&) = default;
};
// Takes effect after all earlier sends to that connection.
struct Hangup {
  ConnectionId connection = 0;
  friend bool operator==(const Hangup&, const Hangup&) = default;
};
// A new, empty store for the members at `addresses`; answered by StoreOpened or StoreFailed, and no
// Round is sent before that. A CloseStore of the same epoch may come before the answer.
struct OpenStore {
  Epoch epoch = 0;
  std::vector<std::string> addresses;  // Advertised, sorted, without duplicates.
  friend bool operator==(const OpenStore&, const OpenStore&) = default;
};
struct CloseStore {
  Epoch epoch = 0;
  friend bool operator==(const CloseStore&, const CloseStore&) = default;
};
// No node is left: the job is over and every reachable node said goodbye, or all left before it
// began. The machine may be destroyed; if it is kept, it refuses latecomers of an ended job.
struct Finished {
  friend bool operator==(const Finished&, const Finished&) = default;
};
struct Say {  // A line for the user at the host.
  std::string text;
  friend bool operator==(const Say&, const Say&) = default;
};
struct Note {  // For tests: what was ignored or decided, and why.
  std::string text;
  friend bool operator==(const Note&, const Note&) = default;
};

}  // namespace membership

class Membership {
 public:
  using Event = std::variant<membership::Joined, membership::Reported, membership::Parted,
                             membership::Disconnected, membership::StoreOpened,
                             membership::StoreFailed, membership::Neighbours, membership::Tick>;
  using Effect =
      std::variant<membership::Send, membership::Hangup, membership::OpenStore,
                   membership::CloseStore, membership::Finished, membership::Say, membership::Note>;

  struct Options {
    // An agent whose connection breaks is lost unless it reconnects within this time (a middlebox
    // that resets a connection does not mean a dead node). Where the job cannot go on without its
    // node, nothing is gained by that: then only its lease counts.
    Duration reconnect_grace = std::chrono::milliseconds{250};
    // Used if the first agent names no lease.
    Duration lease = std::chrono::seconds{3};
    // The interval of waiting lines: starts at first_status and doubles up to status_cap.
    Duration first_status = std::chrono::seconds{3};
    Duration status_cap = std::chrono::seconds{60};
    // A step later than this, or than a quarter of a lease, after the deadline means that this
    // process stood still: all leases are renewed once before any node is called lost.
    Duration jump = std::chrono::seconds{1};
    // A job that cannot start because of one node remains at its host for nodes that come later,
    // until all have been told, but no longer than this.
    Duration tell_linger = std::chrono::seconds{10};
    // After a success the store stays open for the last clients until every agent has said goodbye,
    // but no longer than this.
    Duration store_linger = std::chrono::seconds{1};
    uint64_t host_instance = 0;  // Random: part of every Welcome.
    membership::Past past;
    // Whether this machine's own links are down. None: it is not known.
    std::function<bool()> lost_network;
    bool may_be_followed = false;  // Another node may host meanwhile, so nothing runs on here.
    membership::Judge judge;  // None: a departure explains all, else the first failure to arrive.
  };

  explicit Membership(const Options& options);

  // Appends the effects in the order to perform them.
  void step(Instant now, const Event& event, std::vector<Effect>& out);

  Instant next_deadline() const;

  // The global rank whose failure ends the epoch, if a worker's failure does: the first one
  // reported, until the judge has decided.
  std::optional<int> failed_rank() const {
    if (judgement_) return judgement_->verdict.rank;
    return failure_ ? std::optional(failure_->failure.rank) : std::nullopt;
  }

  // REQUIRES: a round has been formed here.
  membership::Formed formed() const { return {epoch_, seats_, restarts_, changes_}; }

  // When the job ended, all nodes of its newest round were connected: no other host can know of
  // another end.
  bool all_were_there() const { return all_were_there_; }

  // Whether nodes have been missing for so long that the waiting ones are told.
  bool waits_for_nodes(Instant now) const;

  // Whether nodes may still come that must be told why the job cannot start.
  bool has_untold(Instant now) const;

  // One line for people: "epoch 3 runs on 4 nodes", "2 of 4 nodes; missing: node rank 2, 3; ...".
  std::string status(Instant now) const;

  // All nodes: those of the epoch by rank, then the others in natural order of their names. O(N log
  // N); for users' queries.
  std::vector<membership::NodeLine> nodes(Instant now) const;

  // The way of a datagram within the epoch that runs or is being stopped. No receivers: it is
  // dropped. O(log N) for each receiver.
  struct Route {
    int from = -1;  // The sender's node rank.
    std::vector<membership::ConnectionId> receivers;
  };
  // `to`: a node rank; -1: all nodes of the epoch. The sender gets none of its own.
  Route route(membership::ConnectionId sender, membership::Epoch epoch, int to) const;

  // Whether the agent of this connection is in the epoch that is being formed, runs or is stopped.
  bool is_member(membership::ConnectionId connection) const;

 private:
  enum class Stage { forming, opening, running, stopping, ended };

  // What a node contributes to the sums below.
  struct Tally {
    int stays = 0;      // It is not leaving.
    int ready = 0;      // It could be in a round now.
    int members = 0;    // It is of the epoch. So are those of the next four.
    int pending = 0;    // It has processes that may be alive.
    int testified = 0;  // It has none, stays, and is not ready for the next epoch yet.
    int done = 0;       // All its workers exited with 0.
    int away = 0;       // It stays and is not ready.
    int guests = 0;     // It stays and is not of the epoch: it may replace a node that is lost.
  };

  using HostAndMachine = std::pair<std::string, std::string>;

  struct Node {
    membership::Join join;
    uint64_t arrival = 0;  // Smaller for nodes that came first.
    std::optional<membership::ConnectionId> connection;
    Instant heard_at{};               // When it was last heard.
    Instant lost_at{};                // When it is lost, unless it is heard before.
    Instant expires{};                // That, or when its silence is said; its place in leases_.
    Duration silence_limit{};         // The limit behind `lost_at`, for messages.
    bool missed = false;              // Its silence was said.
    std::optional<Instant> detached;  // When its connection broke, unless it has a new one.
    std::optional<Instant> left_at;   // When it announced that it leaves.
    bool heard = false;               // A report has arrived.
    membership::Report report;        // The newest one, without the two below.
    std::optional<membership::NodeFailure> failure;  // Of the epoch.
    std::optional<membership::Evidence> evidence;    // Of the epoch.

    uint64_t order_sequence = 0;  // Of the newest order; 0: none.
    membership::Order::What order;
    Instant order_sent{};

    bool member = false;                   // In the epoch (still while the next one forms).
    bool started = false;                  // It was told to start this epoch.
    uint64_t stop_order = 0;               // Sequence of this epoch's Stop; 0: none yet.
    bool in_line = false;                  // Its node rank belongs to a node that may return.
    bool left = false;                     // It has announced that it leaves.
    std::optional<Instant> surplus_since;  // All places are taken, and nobody asked for a spare.
    int rank = -1;                         // In epoch rank_epoch.
    membership::Epoch rank_epoch = 0;
    membership::Round round;  // Its part of the epoch, without what StoreOpened adds.
    Tally tally;
  };

  // The first failure of an epoch to arrive: it ends the epoch.
  struct FirstFailure {
    membership::AgentId agent;
    std::string host_name;
    int node_rank = 0;
    membership::NodeFailure failure;
  };

  // The first node that an epoch lost, or that left it.
  struct Departure {
    membership::StopWhy why = membership::StopWhy::lost;
    std::string host_name;
    int node_rank = -1;
    int signal = 0;
    std::string text;  // "node b (rank 1) was lost: no sign of life for 3 s"
  };

  // One overload for each event; see the table in membership.cc.
  void on(const membership::Joined& event);
  void on(const membership::Reported& event);
  void on(const membership::Parted& event);
  void on(const membership::Disconnected& event);
  void on(const membership::StoreOpened& event);
  void on(const membership::StoreFailed& event);
  void on(const membership::Neighbours& event);
  void on(const membership::Tick& event);
  void settle();

  // membership_nodes.cc: which nodes are here, and what each has been told.
  std::optional<membership::Refused> refusal(const membership::Join& join) const;
  std::optional<membership::Refused> rank_refusal(const membership::Join& join) const;
  bool may_be_gone(const Node& holder) const;
  Duration silence(const Node& node) const;
  bool is_silent(const Node& node) const;
  void give_way_to_host(const membership::Join& host);
  void refuse(membership::ConnectionId connection, membership::Refused refused);
  void learn_job(const membership::Join& original);
  void say_differences(const membership::Join& join);
  Node& admit(const membership::Join& join);
  void tell_apart(Node& node);
  void rename(const HostAndMachine& known, std::string& shown, const membership::Join& other);
  void attach(Node& node, const membership::Joined& event);
  void detach(Node& node);
  void evict_from_line(const Node& holder);
  void heard(Node& node);
  bool has_begun(const Node& node) const;
  bool may_be_waited_for(const Node& node) const;
  Duration silence_limit(const Node& node) const;
  Duration grace(const Node& node) const;
  void renew(Node& node);
  void lease(Node& node, Instant lost_at, Duration limit);
  void miss(Node& node);
  void renew_all();
  bool is_cut_off() const;
  void keep_places();
  bool keep_no_places();
  bool has_own_node() const;
  void see_network(const Node& by);
  void drop(Node& node, bool hang_up);
  void lose(Node& node);
  void recount(Node& node);
  Tally tally_of(const Node& node) const;
  bool is_ready(const Node& node) const;
  bool is_over(const Node& node) const;
  void order(Node& node, membership::Order::What what);
  void send_order(Node& node);
  void send(const Node& node, membership::HostMessage message);
  void notice_standstill();
  Duration watch_period() const;
  Duration heartbeat() const;
  Node* node_of(membership::ConnectionId connection);
  Node& node_of(const membership::AgentId& agent);

  // membership_reports.cc: what a report means.
  void take_evidence(Node& node, const membership::Report& report);
  void take_failure(Node& node, const membership::Report& report);
  bool is_unfit(const Node& node, const membership::Report& report) const;
  void take_unfit(Node& node, const membership::NodeFailure& failure);
  void take_phase(Node& node);
  void take_ready(Node& node);
  void take_leaving(Node& node);
  void stop_stray(Node& node);
  void consider_newcomer(Node& node);
  Duration surplus_patience() const;
  bool is_surplus(const Node& node) const;

  // membership_rounds.cc: rounds begin, stop and end.
  void begin_forming(bool after_stop);
  void start_forming_clocks();
  void try_form();
  void form();
  void seat(const std::vector<Node*>& chosen);
  std::vector<Node*> choose();
  std::optional<membership::ConnectionId> connection_at(int rank) const;
  void start_round(int port);
  bool awaits_sign() const;
  void begin_stop(membership::StopWhy why, std::string text);
  void depart(const Node& node, membership::StopWhy why, std::string text);
  void conclude();
  membership::Testimony take_testimony(Node& node) const;
  void give_testimony(std::map<membership::AgentId, membership::Testimony>& all, Node& node) const;
  void forget_evidence();
  void hear_last_of(Node& node);
  membership::Judgement judge_epoch();
  void change_membership();
  void end_short_of_nodes();
  void end_of_failure();
  void end_without_restart();
  void end_for_unfit(const Node& node, const membership::NodeFailure& failure);
  void end(membership::EndWhy why, ExitCode code, std::string text);
  void end(membership::End verdict);
  int teller() const;
  void close_store();
  void tell_waiting();
  bool is_short() const;
  bool change_allowed() const;

  // membership_status.cc: lines for people.
  std::string name_of(const Node& node) const;
  std::string state_text(const Node& node, Instant now) const;
  std::string_view part_text(const Node& node) const;
  std::string_view waiting_text(const Node& node) const;
  std::string forming_text(Instant now) const;
  std::string who_text() const;
  std::string here_text() const;
  std::string missing_text() const;
  std::string silent_text() const;
  std::string what_comes_text(Instant now) const;
  std::string budget_text() const;
  std::string what_next_text(membership::StopWhy why) const;
  std::string lost_text(const Node& node, bool cut_off) const;
  std::string failure_text() const;
  void note(std::string text);
  void say(std::string text);

  // Invariants. (1) Outside step() tally_ is the sum over nodes_, and node.tally is tally_of(node).
  // (2) by_connection_ and leases_ hold exactly the connections and the leases of nodes_. (3)
  // epoch_ only grows; a Round is ordered only in start_round(), for the newest epoch, to nodes
  // that were ready when it was formed. (4) restarts_ <= max_restarts. (5) store_ is the epoch
  // whose store was asked for and not closed. (6) A node that may have live workers is ordered
  // nothing but its Round, Stop and End: a Wait would replace a Stop that it has not received.
  Options options_;
  Stage stage_ = Stage::forming;
  Instant now_{};
  std::vector<Effect>* out_ = nullptr;  // Only within step().

  std::map<membership::AgentId, Node> nodes_;
  std::map<membership::ConnectionId, membership::AgentId> by_connection_;
  std::set<std::pair<Instant, membership::AgentId>> leases_;
  std::map<int, std::vector<membership::AgentId>> claims_;  // The agents that claim each node rank.
  std::map<HostAndMachine, std::string> shown_names_;       // What others call each.
  std::set<std::string> texts_;  // What its nodes run, where that is a text: digests.
  Tally tally_;
  uint64_t arrivals_ = 0;
  uint64_t orders_ = 0;  // The newest order's sequence.

  std::optional<membership::Join> job_;  // The first join: the settings of the job.
  membership::Epoch epoch_ = 0;
  membership::Epoch seen_epoch_ = 0;  // The highest that any node has named.
  int seen_nodes_ = 0;                // Nodes in it.
  bool formed_here_ = false;          // epoch_ was formed by this instance.
  int restarts_ = 0;
  int changes_ = 0;
  membership::Epoch store_ = 0;  // 0: no store is open.

  // While forming.
  bool after_stop_ = false;
  Instant forming_since_{};
  std::string neighbours_;
  std::string unfit_;  // The node that joined only to report that it cannot take part.
  Instant join_by_ = kNever;
  Instant last_call_ = kNever;  // kNever: none, or over.
  bool last_call_over_ = false;
  Instant status_at_ = kNever;
  Duration status_every_{};

  // Of the epoch.
  bool awaits_enough_ = false;              // Fewer than MIN are left, but others are expected.
  std::vector<membership::AgentId> seats_;  // By node rank.
  std::optional<FirstFailure> failure_;
  std::optional<Departure> departure_;
  std::map<membership::AgentId, membership::Testimony> gone_;  // Nodes of the epoch that are gone.
  std::optional<membership::Judgement> judgement_;
  std::optional<membership::Verdict> before_;  // Of the epoch that failed before this restart.

  std::optional<membership::End> end_;
  bool all_were_there_ = false;
  bool finished_ = false;
  bool differences_said_ = false;
  bool keeps_places_ = false;  // No other node is heard: this one is cut off.
  Instant tell_until_{};       // For a job that cannot start.
  int told_ = 0;               // Nodes that have processed the End.
  Instant close_store_at_ = kNever;
  Instant awake_since_{};      // After a standstill of this process.
  Instant watch_at_ = kNever;  // Deadline of our own regular Tick: a late one shows a standstill.
};

}  // namespace muster
