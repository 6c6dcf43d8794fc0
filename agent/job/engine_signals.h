// Decides what to do about signals if an engine or a service manager signals every process of a job
// itself, as Slurm's daemon and systemd do: the front, this agent, the workers and what they
// started, one after another, and on each node a little earlier or later. Each worker must get a
// signal once. If the witness got it (agent/process/signal_witness.h), so did the workers. If only
// the front got it, they did not: a plain kill, a signal to the batch script alone, or one of a
// site that tracks processes by their group.
//
//   a stop     goes to this node's workers, unless they have had it
//   a warning  does, too, and to all other nodes: every node tells node 0, which tells all
//
// A pure machine; EnginePart performs its effects.
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/base/time.h"

namespace muster {

class EngineSignals {
 public:
  // The witness gets what an engine or a service manager sends within this time of the front.
  static constexpr auto kNextDoor = std::chrono::milliseconds(250);
  // The same for another process that signals one after the other, while CPUs are free.
  static constexpr auto kNextCall = std::chrono::milliseconds(20);
  // The front gets such a signal within this time of a worker.
  static constexpr auto kSiblings = std::chrono::milliseconds(100);
  // Another node gets such a signal within this time of this one.
  static constexpr auto kElsewhere = std::chrono::seconds(1);
  // The same signal within this time is the same warning.
  static constexpr auto kSame = std::chrono::seconds(5);

  // This node's place in the newest round.
  struct Seated {
    int node_rank = 0;
    int nodes = 1;
  };
  // The front got this signal. `ends`: it is a stop, not a warning.
  struct FrontGot {
    int signal = 0;
    bool ends = false;
    Duration patience = kNextDoor;  // How long to wait for the witness.
  };
  struct WitnessGot {
    int signal = 0;
  };
  // Another node was warned. `by_engine`: by an engine that warns every process itself.
  struct Heard {
    int signal = 0;
    bool by_engine = false;
  };
  // The job's end is near: a warning that no signal brought.
  struct TimeIsShort {
    int signal = 0;  // The one that the workers get.
  };
  struct Tick {};
  using Event = std::variant<Seated, FrontGot, WitnessGot, Heard, TimeIsShort, Tick>;

  // Stop the workers. `told`: they have had the signal.
  struct Stop {
    int signal = 0;
    bool told = false;
    friend bool operator==(const Stop&, const Stop&) = default;
  };
  // Warn the workers. `told`: they have had the signal.
  struct Warn {
    int signal = 0;
    bool told = false;
  };
  // Send the warning to that node, or to all others (-1).
  struct Tell {
    int node = -1;
    int signal = 0;
    bool by_engine = false;
  };
  using Effect = std::variant<Stop, Warn, Tell>;

  // `was_sent`: returns true if the witness was sent a signal that it has not seen yet, because a
  // busy machine has not let it run. Null: it never was.
  explicit EngineSignals(std::function<bool(int signal)> was_sent = {})
      : was_sent_(std::move(was_sent)) {}

  void step(Instant now, const Event& event, std::vector<Effect>& out);
  Instant next_deadline() const;

 private:
  // What is known of one signal. kNever: it has not happened, or nothing is due.
  struct Signal {
    Instant witness_got = kNever;
    Instant warned = kNever;
    Instant heard = kNever;     // Another node sent a warning.
    Instant told_all = kNever;  // This node, as node 0, sent it to all.
    Instant decide_at = kNever;
    bool ends = false;       // The decision due is about a stop.
    bool is_ours = false;    // It did not come from another node.
    bool by_engine = false;  // Sent along to other nodes.
  };

  void on(Instant now, const Seated& event);
  void on(Instant now, const FrontGot& event);
  void on(Instant now, const WitnessGot& event);
  void on(Instant now, const Heard& event);
  void on(Instant now, const TimeIsShort& event);
  void on(Instant now, const Tick& event);

  void decide(Instant now, int number, bool told);
  void tell_others(Instant now, int number);

  const std::function<bool(int signal)> was_sent_;
  int node_rank_ = 0;
  int nodes_ = 1;
  bool stopped_ = false;                // The only Stop was emitted.
  std::map<int, Signal> signals_;       // Keyed by number.
  std::vector<Effect>* out_ = nullptr;  // Only within step().
};

}  // namespace muster
