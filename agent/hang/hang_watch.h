// This node's part in the watch for hangs. It reads its ranks (node_watch.h), and either judges all
// ranks of the job (job_watch.h; node rank 0) or reports to the node that does (node_reporter.h).
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
    std::function<void(const Effect&)> found;         // On the judging node; not LookAt.
    std::function<void(std::string_view news)> told;  // On the others: a published finding.
    // -1: to all other nodes. The message may be lost.
    std::function<void(int node_rank, std::string payload)> send;
    // True while our stack reader has stopped the rank; such a stop must not be reported.
    std::function<bool(int local_rank)> is_held;
    std::function<void()> settled;                   // is_settling() has become false.
    std::function<void(const Stragglers&)> held_up;  // On the judging node.
    std::function<void()> looked;                    // A poll of this node's ranks is complete.
    // A rank's ring, at each poll and a last time when the rank has ended.
    std::function<void(int rank, const RecordedState& state, const RingReader& reader)> read;
    // The judging node's wall clock at our time `own`, in nanoseconds since 1970.
    std::function<void(Instant own, int64_t there, Duration error)> clock;
  };

  HangWatch(boost::asio::io_context& io, const Rings& rings, SiteNames& site_names,
            const Limits& limits, Callbacks callbacks);

  // ---- an attempt
  // Call before the workers are started and their rings made.
  void begin(const WatchedRound& round);
  void started(int local_rank, pid_t pid, std::string device);
  void ended(int local_rank, int code);  // ExitStatus::signed_code()
  // Calls `then` once the judging node has compared the last calls of this node's workers, which
  // have all ended: at once if there are none, after kJudgedMax at the latest, never after end().
  void when_judged(std::function<void()> then);
  // The workers are being stopped or have ended; the rings may be freed after it.
  void end();

  // What clients of the workers' store wait for, if this node hosts it.
  void keys_awaited(std::vector<AwaitedKeys> waits);

  void suspended() { node_.suspended(); }
  void resumed() { node_.resumed(); }
  // Drops the last sample of a rank that we stopped: a state takes two samples after that.
  void was_held(int rank) { node_.was_held(rank); }

  // A Letter of another node, sent at `then` on our clock, which may be wrong by `error`.
  void hear(int node_rank, std::string_view payload, Instant then, Duration error);
  // Sends a finding from the judging node to all others.
  void publish(std::string news) { job_.publish(std::move(news)); }

  // True while the attempt's first failure is not explained yet.
  bool is_settling() const { return job_.is_settling(); }
  // "3 ranks wait for rank 2 in barrier #7 of group 'world', for 4.0 s"; empty: none waits or
  // !judges().
  std::string status() const { return job_.status(); }
  // These two know ranks and groups on the judging node only.
  std::string name_of_group(const std::string& id) const { return job_.name_of_group(id); }
  bool has_ended(int rank) const { return job_.has_ended(rank); }
  // Place of another node's rank; nullptr: unknown.
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
  int running_ = 0;  // Running workers.
  NodeWatch node_;
  JobWatch job_;
  std::optional<NodeReporter> reporter_;  // Empty on the judging node.
  uint64_t heard_ = 0;                    // Number of the newest finding.
  std::function<void()> after_judged_;
  boost::asio::steady_timer judged_limit_;
  std::optional<ArrivalSampler> sampler_;
  Deadline next_arrivals_{};
  Deadline next_clock_{};
  int clocks_told_ = 0;
};

}  // namespace muster::hang
