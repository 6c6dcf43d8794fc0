// Decides which nodes are in one job: rounds, epochs, ranks, leases, budgets and the single
// verdict. One machine per job id, in the host's process. Pure: it takes the time, connections and
// reports as events, and emits effects (send a message, open or close the store) that the
// coordinator performs. The simulator runs thousands of agents against the same code.
//
//              enough ready              failure, loss, leave, join           all of the epoch
//                                                                             reaped,
//   forming ───────────────▶ running ───────────────────────────▶ stopping ── left or lost ──┐
//      ▲                        │ all done                                                   │
//      │                        ▼                                                            │
//      │                      ended ◀──────── budget spent, or fewer than MIN left ──────────┤
//      └─────────────────────────────────────────────────────────────────── else ────────────┘
//
// That an epoch ends is decided at once; why, only when nothing of it is alive: by then every node
// has reported its workers' evidence, every loss is known, and a judge (passed in by the owner,
// since evidence is opaque here) names the failure that explains the others. A round forms as soon
// as MAX nodes are ready, or MIN when the last call is over (counted from the first join), or when
// all remaining nodes are ready after a stop. The store is open while an epoch runs or stops; after
// a success for up to store_linger; after a loss that ends the job until the last node is dropped.
#pragma once

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

// The judge's input on one node of a failed epoch. Instants are in the host's clock.
struct Testimony {
  std::string host_name;
  int node_rank = 0;
  int base_rank = 0;  // Global rank of its first worker.
  int workers = 1;
  std::optional<NodeFailure> failure;  // Its first failure, if any.
  std::optional<Evidence> evidence;    // What its workers left behind.
  // True if the node was lost or left; then when it was last heard, and when it was known gone.
  bool gone = false;
  Instant last_heard{};
  Instant gone_by{};
};

struct Judgement {
  Verdict verdict;
  std::string brief;          // The verdict's detail, short enough for a restart line.
  bool by_departure = false;  // True if a node's loss or departure explains all failures.
};

// The newest round of a host.
struct Formed {
  Epoch epoch = 0;               // 0: there was none.
  std::vector<AgentId> members;  // Indexed by node rank.
  int restarts = 0;
  int changes = 0;
  friend bool operator==(const Formed&, const Formed&) = default;
};

// What is known of a job before any node joins: the newest round that another host formed.
struct Past : Formed {
  int nodes = 0;  // How many of its nodes may come back (without its dead host); 0: unknown.
};

// Pure. `testimonies`: those of all nodes of the epoch, by node rank.
using Judge = std::function<Judgement(const std::vector<Testimony>& testimonies)>;

// ---- events

// An authenticated agent joins; if it has joined before, this connection replaces the old one.
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
// Text for waiting nodes about other jobs that wait at this host (a node with a wrong job id waits
// as a job of its own) and about this host, which others may not find. Empty: nothing to say.
struct Neighbours {
  std::string text;
};
struct Tick {};

// ---- effects

// The owner fills in a Welcome's fields about the host.
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
// Opens an empty store for the members at `addresses`; answered by StoreOpened or StoreFailed,
// before which no Round is sent. A CloseStore of the same epoch may come before the answer.
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
// began. The machine may be destroyed; if kept, it refuses latecomers to an ended job.
struct Finished {
  bool has_ended = true;  // Else all nodes left before the job began; the next one begins it anew.
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
    // An agent whose connection breaks (perhaps reset by a middlebox) is lost unless it reconnects
    // within this time, or within its lease if the job cannot go on without the node.
    Duration reconnect_grace = std::chrono::milliseconds{250};
    Duration lease = std::chrono::seconds{3};  // Used if the first agent names none.
    // Interval of waiting lines: starts at first_status and doubles up to status_cap.
    Duration first_status = std::chrono::seconds{3};
    Duration status_cap = std::chrono::seconds{60};
    // A step whose delay exceeds the smaller of this and watch_period() means that this process
    // stood still: all leases are renewed once before any node is declared lost.
    Duration jump = std::chrono::seconds{1};
    // How long the host stays to inform late nodes that the job cannot start, or until all know.
    Duration tell_linger = std::chrono::seconds{10};
    // How long after a success the store stays open, unless every agent says goodbye before.
    Duration store_linger = std::chrono::seconds{1};
    // A scheduler signals all nodes of a job, but not at one instant: after a node has left on a
    // signal the next round begins this much later at the earliest, so that none begins in vain.
    Duration signals_apart = std::chrono::milliseconds{250};
    uint64_t host_instance = 0;  // Random: part of every Welcome.
    membership::Past past;
    std::function<bool()> lost_network;  // True: our own links are down. Null: unknown.
    // Another node may take over: a host that is cut off does not wait for the silent nodes.
    bool may_be_followed = false;
    membership::Judge judge;  // Null: a departure explains all, else the first failure to arrive.
  };

  explicit Membership(const Options& options);

  // Appends the effects in the order to perform them.
  void step(Instant now, const Event& event, std::vector<Effect>& out);

  Instant next_deadline() const;

  // Global rank whose failure ends the epoch, if any: the first reported until the judge decides.
  std::optional<int> failed_rank() const {
    if (judgement_) return judgement_->verdict.rank;
    return failure_ ? std::optional(failure_->failure.rank) : std::nullopt;
  }

  // REQUIRES: a round has been formed here.
  membership::Formed formed() const { return {epoch_, seats_, restarts_, changes_}; }

  // True if all nodes of the newest round were there at the end: no other host can know another.
  bool all_were_there() const { return all_were_there_; }

  // True once nodes have been missing for first_status, so that the waiting ones learn which.
  bool waits_for_nodes(Instant now) const;

  // True while nodes may still join that have to learn why the job cannot start.
  bool has_untold(Instant now) const;

  // Returns a line for people: "epoch 3 runs on 4 nodes", "2 of 4 nodes; missing: node rank 2, 3".
  std::string status(Instant now) const;

  // Returns all nodes, for users: the epoch's by rank, then the others by name. O(N log N).
  std::vector<membership::NodeLine> nodes(Instant now) const;

  // Returns a datagram's receivers in the running or stopping epoch; none: drop it. O(log N) each.
  struct Route {
    int from = -1;  // The sender's node rank.
    std::vector<membership::ConnectionId> receivers;
  };
  // `to`: a node rank; -1: all nodes of the epoch but the sender.
  Route route(membership::ConnectionId sender, membership::Epoch epoch, int to) const;

  // True if this connection's agent is in the epoch that is being opened, runs or is being stopped.
  bool is_member(membership::ConnectionId connection) const;

 private:
  enum class Stage { forming, opening, running, stopping, ended };

  // One node's contribution to the sums in tally_.
  struct Tally {
    int stays = 0;      // Is not leaving.
    int ready = 0;      // Could be in a round now.
    int members = 0;    // In the epoch. The next four count some of these.
    int pending = 0;    // May have live processes.
    int testified = 0;  // Has none, stays, and is not ready for the next epoch yet.
    int done = 0;       // All its workers exited with 0.
    int away = 0;       // Stays and is not ready.
    int guests = 0;     // Stays and is not in the epoch: may replace a lost node.
  };

  using HostAndMachine = std::pair<std::string, std::string>;

  struct Node {
    membership::Join join;
    uint64_t arrival = 0;  // Order of the joins.
    std::optional<membership::ConnectionId> connection;
    Instant last_sign{};              // When it was last heard.
    Instant lost_at{};                // When it is lost unless heard before.
    Instant expires{};                // lost_at, or when to report its silence; its key in leases_.
    Duration silence_limit{};         // The limit that led to lost_at, for messages.
    bool silence_said = false;        // Its silence was reported to the user.
    std::optional<Instant> detached;  // When its connection broke; none while connected.
    std::optional<Instant> left_at;   // When it announced that it leaves.
    bool has_reported = false;        // A report has arrived.
    membership::Report report;        // The newest, without the two below.
    std::optional<membership::NodeFailure> failure;  // The epoch's.
    std::optional<membership::Evidence> evidence;    // The epoch's.

    uint64_t order_sequence = 0;  // The newest order's; 0: none.
    membership::Order::What order;
    Instant order_sent{};

    bool member = false;                   // Is in the epoch (still while the next one forms).
    bool started = false;                  // Was sent this epoch's Round.
    uint64_t stop_order = 0;               // Sequence of this epoch's Stop; 0: none yet.
    bool in_line = false;                  // Waits for its node rank, whose holder may return.
    bool left = false;                     // Has announced that it leaves.
    std::optional<Instant> surplus_since;  // All places are taken, in a job without spares.
    int rank = -1;                         // Its node rank in epoch rank_epoch.
    membership::Epoch rank_epoch = 0;
    membership::Round round;  // Its Round, without what start_round() adds.
    Tally tally;
  };

  // The first failure of an epoch to arrive; it ends the epoch.
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

  // How the next round forms.
  struct Forming {
    bool after_stop = false;
    Instant since = kNever;
    std::string unfit;  // "; NODE does not take part: ..."; see is_unfit().
    Instant join_by = kNever;
    Instant last_call = kNever;  // kNever: none, or over.
    bool last_call_over = false;
    Instant status_at = kNever;
    Duration status_every{};
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

  // membership_nodes.cc: which nodes are here, and what each was ordered.
  std::optional<membership::Refused> refusal(const membership::Join& join) const;
  std::optional<membership::Refused> rank_refusal(const membership::Join& join) const;
  bool may_be_gone(const Node& holder) const;
  static Duration silence(const Node& node, Instant now);
  bool is_silent(const Node& node, Instant now) const;
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
  void on_sign(Node& node);
  bool has_begun(const Node& node) const;
  bool may_be_waited_for(const Node& node) const;
  Duration silence_limit(const Node& node) const;
  Duration grace(const Node& node) const;
  void renew(Node& node);
  void set_lease(Node& node, Instant lost_at, Duration limit);
  void say_silence(Node& node);
  void renew_all();
  bool is_cut_off() const;
  void keep_places();
  bool release_places();
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

  // membership_rounds.cc: what a report means.
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
  void keep_testimony(Node& node);
  membership::Judgement judge_epoch();
  void change_membership();
  void end_short_of_nodes();
  void end_of_failure();
  void end_short_after_failure();
  void end_for_unfit(const Node& node, const membership::NodeFailure& failure);
  void end(membership::EndWhy why, ExitCode code, std::string text);
  void end(membership::End verdict);
  int teller() const;
  void close_store();
  void tell_waiting();
  bool is_short() const;
  bool change_allowed() const;

  // Lines for people.
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
  // (2) by_connection_ and leases_ hold exactly the connections and leases of nodes_. (3)
  // epoch_ only grows; a Round is ordered only in start_round(), for the newest epoch, to nodes
  // that were ready when it was formed. (4) restarts_ <= max_restarts. (5) store_ is the epoch
  // whose store was requested and not closed. (6) A node that may have live workers gets no order
  // but its Round, Stop and End: a Wait would replace a Stop that it has not received.
  Options options_;
  Stage stage_ = Stage::forming;
  Instant now_{};
  std::vector<Effect>* out_ = nullptr;  // Only within step().

  std::map<membership::AgentId, Node> nodes_;
  std::map<membership::ConnectionId, membership::AgentId> by_connection_;
  std::set<std::pair<Instant, membership::AgentId>> leases_;
  std::map<int, std::vector<membership::AgentId>> claims_;  // The agents that claim each node rank.
  std::map<HostAndMachine, std::string> shown_names_;  // Each machine's name in lines for people.
  std::set<std::string> texts_;  // Digests of the program texts that run; see is_text().
  Tally tally_;
  uint64_t arrivals_ = 0;
  uint64_t orders_ = 0;  // The newest order's sequence.

  std::optional<membership::Join> job_;  // The first join, whose settings are the job's.
  membership::Epoch epoch_ = 0;
  membership::Epoch seen_epoch_ = 0;  // The highest known, from any node or from the past.
  int seen_nodes_ = 0;                // Number of nodes in it; 0: unknown.
  bool formed_here_ = false;          // True if this instance formed epoch_.
  int restarts_ = 0;
  int changes_ = 0;
  membership::Epoch store_ = 0;  // 0: no store is open.

  Forming forming_;
  std::string neighbours_;
  Instant others_may_leave_until_{};  // See signals_apart.

  // The epoch's.
  bool awaits_enough_ = false;              // Fewer than MIN are left, but more are expected.
  std::vector<membership::AgentId> seats_;  // Indexed by node rank.
  std::optional<FirstFailure> failure_;
  std::optional<Departure> departure_;
  std::map<membership::AgentId, membership::Testimony> gone_;  // Nodes of the epoch that are gone.
  std::optional<membership::Judgement> judgement_;
  std::optional<membership::Verdict> before_;  // Why the epoch before this restart failed.

  std::optional<membership::End> end_;
  bool all_were_there_ = false;
  bool finished_ = false;
  bool differences_said_ = false;
  bool keeps_places_ = false;  // True while this host is cut off; see keep_places().
  Instant tell_until_{};       // See tell_linger.
  int told_ = 0;               // Nodes that have processed the End.
  Instant close_store_at_ = kNever;
  Instant awake_since_{};      // End of this process's last standstill.
  Instant watch_at_ = kNever;  // Deadline of our regular Tick: a late one shows a standstill.
};

}  // namespace muster
