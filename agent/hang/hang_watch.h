// This node's part in the watch for hangs: it reads its ranks (node_watch.h), and is either the one
// that judges all of them (job_watch.h; node rank 0, and a node alone) or one that reports to it
// (node_reporter.h).
//
// Owned by the agent's loop, for all attempts; control loop only.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sys/types.h>

#include "agent/hang/arrivals.h"
#include "agent/hang/job_watch.h"
#include "agent/hang/node_reporter.h"
#include "agent/hang/node_watch.h"
#include "agent/letter.h"

namespace muster::hang {

class HangWatch {
 public:
  struct Callbacks {
    std::function<void(const Effect&)> found;         // On the node that judges; never LookAt.
    std::function<void(std::string_view news)> told;  // On the others: what it has published.
    // To the node of that rank; -1: to all others. It may be lost.
    std::function<void(int node_rank, std::string payload)> send;
    // Whether the rank's processes are held now to read their stacks, which is no state of theirs.
    std::function<bool(int local_rank)> is_held;
    std::function<void()> settled;                   // is_settling() was true, and no longer is.
    std::function<void(const Stragglers&)> held_up;  // On the node that judges.
    // The ring of a rank, at each look, and a last time when it has ended.
    std::function<void(int rank, const RecordedState& state, const RingReader& reader)> read;
    // The wall clock of the node that judges, in nanoseconds since 1970, at `own` of ours.
    std::function<void(Instant own, int64_t there, Duration error)> clock;
  };

  HangWatch(boost::asio::io_context& io, const Rings& rings, SiteNames& site_names,
            const Limits& limits, Callbacks callbacks);

  // ---- an attempt
  // Its workers are about to be started, their rings about to be made.
  void begin(const WatchedRound& round);
  void started(int local_rank, pid_t pid, std::string device);
  void ended(int local_rank, int code);  // ExitStatus::signed_code()
  // Calls `then` once the node that judges has compared the last calls of this node's workers, all
  // of which have ended: at once if there are none, after kJudgedMax if it does not say so, and not
  // at all after end().
  void when_judged(std::function<void()> then);
  // The workers are being stopped, or all have ended; the rings may be freed after it.
  void end();

  void suspended() { node_.suspended(); }
  void resumed() { node_.resumed(); }
  // Its processes were held since the last look: two that come after that make a state.
  void was_held(int rank) { node_.was_held(rank); }

  // A message of another node, about hangs: of a kind of Letter's. `then`: when it was sent, in our
  // clock, and how wrong that may be.
  void hear(int node_rank, std::string_view payload, Instant then, Duration error);
  // From the node that judges to all others.
  void publish(std::string news) { job_.publish(std::move(news)); }

  // Whether the first failure of the attempt is not explained yet.
  bool is_settling() const { return job_.is_settling(); }
  // One line: "3 ranks wait for rank 2 in barrier #7 of group 'world', for 4.0 s"; empty: nobody
  // waits, or this node does not judge.
  std::string status() const { return job_.status(); }
  // Of all ranks and groups, on the node that judges; the others know of none.
  std::string name_of_group(const std::string& id) const { return job_.name_of_group(id); }
  bool has_ended(int rank) const { return job_.has_ended(rank); }
  // Of a rank of another node; nullptr: unknown.
  const RemoteNodes::Place* place_of(int rank) const { return job_.place_of(rank); }

 private:
  static constexpr auto kJudgedMax = std::chrono::seconds(1);

  bool judges() const { return round_.node_rank == 0; }
  void see(const Event& event);
  void looked();
  void report(Letter kind, bool at_once);
  void tell_arrivals();
  void tell_clock();
  void take_news(std::string_view bytes);
  void note_judged(const std::vector<int>& ranks);
  void go_on();

  const Limits limits_;
  const Callbacks callbacks_;
  WatchedRound round_;
  bool is_watching_ = false;
  int running_ = 0;  // Workers.
  NodeWatch node_;
  JobWatch job_;
  std::optional<NodeReporter> reporter_;  // Unless this node judges.
  uint64_t heard_ = 0;                    // The newest news.
  std::function<void()> after_judged_;
  boost::asio::steady_timer judged_limit_;
  std::optional<ArrivalSampler> sampler_;
  Deadline next_arrivals_{};
  Deadline next_clock_{};
  int clocks_told_ = 0;
};

}  // namespace muster::hang
