// One agent's side of the rendezvous: connect, hello, resend, back-off, lease, and the translation
// of the host's orders into what the agent does with its workers. Pure; the shell (MemberClient)
// connects and authenticates, the agent acts on its workers.
//
//   connecting ─ConnectionUp─▶ joined ─Order Round─▶ in a round ─Order Stop, host silent─▶ stopping
//       ▲                        │                                                            │
//       └── lost, refused ◀──────┴────────────────────── ReadyForRound ◀──────────────────────┘
//
// If the host is silent for a lease, or its port refuses us, we take our round for ended: our
// workers are stopped (the other nodes may already form a round without us, and two rounds must
// never meet), and we keep trying until the join time-out, or for two leases if the host is known
// to be gone.
// Reconnecting to the same host instance within the lease changes nothing. A node whose workers
// have all exited with 0 ends alone, successfully, after two leases without a host.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/prng.h"
#include "rendezvous/base/time.h"
#include "rendezvous/membership/agent_protocol.h"
#include "rendezvous/membership/clock_offset.h"
#include "rendezvous/store/awaited_keys.h"

namespace muster {

namespace member {

using namespace membership;  // NOLINT: the words of the protocol

// ---- events: the connection

struct Begin {};
// The host has answered: its Welcome or Refused follows at once.
struct ConnectionUp {
  std::string dialled;     // The host's address as we reached it.
  std::string advertised;  // Our own address on that connection.
};
// The connection could not be made, or broke.
struct ConnectionFailed {
  Error error;           // What was tried, and why it failed; for the waiting line.
  bool refused = false;  // The port refused us: the host process is gone, not merely silent.
  bool fatal = false;    // Retrying is useless (another service answers, the token is wrong).
  std::optional<End> over = {};  // The job has ended, and has no host any more.
  friend bool operator==(const ConnectionFailed&, const ConnectionFailed&) = default;
};
struct Received {
  HostMessage message;  // Welcome, Refused, Order or Alive.
};

// ---- events: the agent

// Nothing of an earlier epoch is alive here.
struct ReadyForRound {};
struct WorkersDone {  // All exited with 0, and none of their processes is left.
  Epoch epoch = 0;
};
// The epoch's first failure on this node. Its instant is in our own clock.
struct WorkerFailed {
  Epoch epoch = 0;
  NodeFailure failure;
};
// What the epoch's workers left behind here, in our own clock. Posted before ReadyForRound.
struct EvidenceFound {
  Epoch epoch = 0;
  Evidence evidence;
};
// Nothing of the epoch is alive here, and its EvidenceFound, if any, was posted: the host may
// judge, although this node may not want another round yet.
struct Testified {
  Epoch epoch = 0;
};
// A signal ends this node's part. Posted again with reaped = true once nothing is alive.
struct Leaving {
  int signal = 0;
  bool reaped = false;
  bool to_all = false;  // See Report.
};
struct Tick {};

// ---- effects

struct Connect {
  Join join;  // The shell fills in the fields about the connection.
  friend bool operator==(const Connect&, const Connect&) = default;
};
// Takes effect after all earlier sends. No more events of this connection are posted.
struct Disconnect : Nothing {};
struct Send {
  AgentMessage message;
  friend bool operator==(const Send&, const Send&) = default;
};
// A round has formed: start the workers.
struct RoundFormed {
  Round round;
  friend bool operator==(const RoundFormed&, const RoundFormed&) = default;
};
// Stop the workers of `epoch`, then post Testified and ReadyForRound (Leaving if we are leaving).
struct StopWorkers {
  Epoch epoch = 0;
  StopWhy why = StopWhy::failure;
  std::string text;
  friend bool operator==(const StopWorkers&, const StopWorkers&) = default;
};
// The host knows that we leave (or cannot be reached in time): the node's grace may start.
struct LeaveAnnounced : Nothing {};
// The job is over: stop what still runs, print the verdict, leave.
struct JobEnded {
  End end;
  friend bool operator==(const JobEnded&, const JobEnded&) = default;
};
// The nodes did not meet, or we were refused. No worker of ours may go on running.
struct GaveUp {
  Error error;
  bool refused = false;  // The host refused us; `error` holds its text.
  friend bool operator==(const GaveUp&, const GaveUp&) = default;
};
struct Say {  // A line for the user.
  std::string text;
  friend bool operator==(const Say&, const Say&) = default;
};

// The agent's handlers of these effects.
struct Handlers {
  std::function<void(const Round&)> round;
  std::function<void(const StopWorkers&)> stop;
  std::function<void()> leave_announced;
  std::function<void(const End&)> ended;
  std::function<void(const Error&)> failed;   // The nodes did not meet. No call follows.
  std::function<void(const Error&)> refused;  // The host refused us. Null: `failed` is called.
  std::function<void(const std::string&)> say;
  // The workers' store, which this node hosts, is full; a line about it. May be null.
  std::function<void(const std::string&)> store_full;
  // What clients of the workers' store, which this node hosts, wait for; see JobStore. May be null.
  std::function<void(uint64_t epoch, std::vector<AwaitedKeys>)> keys_awaited;
  std::function<void(const Delivered&)> datagram;  // Instant in our own clock. Null: dropped.
};

}  // namespace member

class Member {
 public:
  using Event =
      std::variant<member::Begin, member::ConnectionUp, member::ConnectionFailed, member::Received,
                   member::ReadyForRound, member::WorkersDone, member::WorkerFailed,
                   member::EvidenceFound, member::Testified, member::Leaving, member::Tick>;
  using Effect = std::variant<member::Connect, member::Disconnect, member::Send,
                              member::RoundFormed, member::StopWorkers, member::LeaveAnnounced,
                              member::JobEnded, member::GaveUp, member::Say>;

  struct Options {
    membership::Join join;  // Our identity and our past.
    std::string endpoint;   // Shown to people: "node0:29400".
    // Advice to the user if no host is found.
    std::string remedy =
        "check that the node that hosts the job is running, and that this endpoint is its address "
        "as seen from this node";
    Duration lease = std::chrono::seconds{3};  // Used until the host names another.
    bool others_may_host = false;              // Another node may take over from a host.
    // Give up after this long without contact to a host; zero: the join time-out.
    Duration reach_timeout{};
    Duration backoff_first = std::chrono::milliseconds{20};
    Duration backoff_cap = std::chrono::seconds{1};
    // How long a leaving node waits for the host's acknowledgement before its grace starts.
    Duration announce_patience = std::chrono::milliseconds{300};
    // How long an unacknowledged End or an unreported leave may delay our end.
    Duration goodbye_patience = std::chrono::seconds{1};
    Duration first_status = std::chrono::seconds{3};
    Duration status_cap = std::chrono::seconds{60};
    Duration jump = std::chrono::seconds{1};
    // After losing a connection that lasted this long, back-off and time-outs start anew.
    Duration stable = std::chrono::seconds{1};
    uint64_t seed = 0;  // The jitter's.
  };

  explicit Member(const Options& options);

  // Appends the effects in the order to perform them. After GaveUp, or the Disconnect that follows
  // a Goodbye, the machine is over and ignores all events.
  void step(Instant now, const Event& event, std::vector<Effect>& out);

  // When a Tick would do something; an earlier Tick does nothing.
  Instant next_deadline() const;

  // True if nothing of a round is alive here, and this node wants one.
  bool is_reaped() const { return report_.phase == membership::Phase::ready && report_.reaped; }

  // Returns a line for people: the state of the connection, and what the agent waits for.
  std::string status(Instant now) const;

  bool over() const { return link_ == Link::over; }

  // Translate between our clock and the host's; nullopt while the host's is unknown.
  std::optional<ClockOffset::Reading> host_time(Instant own) const {
    return host_clock_.host_time(own);
  }
  std::optional<ClockOffset::Reading> own_time(Instant host) const {
    return host_clock_.own_time(host);
  }

 private:
  enum class Link { idle, connecting, joining, joined, pausing, over };

  // One overload for each event; the table is in member.cc.
  void on(Instant now, const member::Begin& event);
  void on(Instant now, const member::ConnectionUp& event);
  void on(Instant now, const member::ConnectionFailed& event);
  void on(Instant now, const member::Received& event);
  void on(Instant now, const member::ReadyForRound& event);
  void on(Instant now, const member::WorkersDone& event);
  void on(Instant now, const member::WorkerFailed& event);
  void on(Instant now, const member::EvidenceFound& event);
  void on(Instant now, const member::Testified& event);
  void on(Instant now, const member::Leaving& event);
  void on(Instant now, const member::Tick& event);

  void hear(Instant now, const membership::Challenge& message);
  void hear(Instant now, const membership::Welcome& message);
  void hear(Instant now, const membership::Refused& message);
  void hear(Instant now, const membership::Order& message);
  void hear(Instant now, const membership::Alive& message);
  void hear(Instant, const membership::Nodes&) {}      // Handled by the shell.
  void hear(Instant, const membership::Delivered&) {}  // Handled by the shell.
  void hear(Instant, const membership::WhoseIs&) {}    // Handled by the shell.

  void obey(Instant now, const membership::Wait& what);
  void obey(Instant now, const membership::Round& what);
  void obey(Instant now, const membership::Stop& what);
  void obey(Instant now, const membership::End& what);

  void connect();
  void pause(Instant now);
  void lose_contact(Instant now, std::string why);
  void stop_round(Instant now, membership::StopWhy why, std::string text);
  void end_alone(Instant now);
  void send_report(Instant now);
  void to_host_clock(membership::Report& report) const;
  void announce_leave();
  void all_reaped(Instant now);
  void say_goodbye_if_due();
  void end_late(Instant now, const membership::End& over);
  void give_up(Instant now, Error error, bool refused = false);
  void end();
  void refused_rank(Instant now, const std::string& text);
  void tick_link(Instant now);
  void tick_patience(Instant now);
  void say_waiting(Instant now);
  void forgive_jump(Instant now);

  bool in_round() const;
  bool going() const { return ended_ || report_.phase == membership::Phase::leaving; }
  bool waits_for_host() const;
  Duration backoff_after_loss() const;
  Duration reach_timeout() const;
  // When a silent host ends our round: our workers must stop, or have succeeded.
  Instant silent_at() const {
    return heard_at_ + (report_.phase == membership::Phase::done ? 2 : 1) * lease_;
  }
  Duration patience() const { return std::min(lease_, membership::kSilenceMax); }
  std::string waiting_text(Instant now) const;
  std::string no_host_text() const;
  std::string phase_text() const;

  // Invariants. (1) RoundFormed is emitted only in phase ready, for an epoch above every earlier
  // one. (2) Each epoch gets at most one StopWorkers. (3) report_ is always the current state of
  // this node; nothing but the report is ever resent.
  Options options_;
  Prng prng_;
  membership::Join join_;      // Its past is kept up to date.
  membership::Report report_;  // Current, in our clock; its sequence is that of the last one sent.

  Link link_ = Link::idle;
  uint64_t host_instance_ = 0;   // The last Welcome's.
  uint64_t round_instance_ = 0;  // That of the host that formed our round.
  Duration lease_;
  Duration heartbeat_{};
  Instant heard_at_{};           // When the host was last heard, on any connection.
  Instant link_since_{};         // When joining, then joined, began.
  Instant retry_at_ = kNever;    // While pausing.
  Instant beat_at_ = kNever;     // While joined.
  Instant give_up_at_ = kNever;  // When to give up if no host is reached.
  bool is_spare_ = false;        // Others run while this node waits.
  bool host_is_gone_ = false;    // Its port has refused us since we lost it.
  // Last report before a standstill of ours; 0: none, or answered since.
  uint64_t unanswered_since_standstill_ = 0;
  bool gave_round_up_ = false;  // The newest round's workers were stopped without an order.
  Duration backoff_{};
  int short_lived_ = 0;  // Consecutive connections that were welcomed and soon lost.
  std::string trouble_;  // Why there is no contact.
  std::optional<Instant> rank_refused_at_;

  Instant say_at_ = kNever;  // When the next line about waiting for the host is due.
  Duration say_wait_{};
  std::string wait_text_;  // What the host last said about waiting.

  ClockOffset host_clock_;
  std::deque<std::pair<uint64_t, Instant>> sent_;  // The newest reports, by sequence.

  uint64_t failure_sent_ = 0;  // The first report that carried the failure.
  bool evidence_arrived_ = false;
  uint64_t evidence_sent_ = 0;    // The first report that carried it.
  uint64_t leaving_sent_ = 0;     // The first report of our leaving.
  bool leave_told_ = false;       // The host has acknowledged our leaving.
  bool leave_announced_ = false;  // LeaveAnnounced was emitted.
  Instant announce_by_ = kNever;
  bool ended_ = false;
  Instant goodbye_by_ = kNever;

  std::vector<Effect>* out_ = nullptr;  // Only within step().
};

}  // namespace muster
