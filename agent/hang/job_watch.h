// The hang detector of a job, on the node with rank 0: the shell around Detector. Takes what this
// node's NodeWatch sees and the other nodes report (node_reporter.h), asks nodes to sample
// processes, and publishes findings.
//
// The first failure of a worker ends the watch and may be explained by calls that other nodes have
// not reported yet. So the end is held back until each node has sent its last message, as it does
// when it begins to stop its own workers, or for kSettleMax.
//
// A job whose workers all succeed ends with its last node, and with it the watch. So each last
// message is answered, and a node ends only once answers have named all its ranks
// (HangWatch::when_judged): a mismatch in the last calls is found and reported.
//
// Owned by HangWatch, for all attempts; control loop only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/hang/detector.h"
#include "agent/hang/remote_nodes.h"
#include "agent/hang/stragglers.h"

namespace muster::hang {

// Facts of a round that the watch needs.
struct WatchedRound {
  int node_rank = 0;
  int nodes = 1;
  int base_rank = 0;
  int workers = 1;  // On this node.
  int world_size = 1;
  int store_port = 0;  // Where workers reach the job's store.
  std::string host;    // This node's own name for itself.
};

class JobWatch {
 public:
  struct Callbacks {
    std::function<void(const Effect&)> found;  // Gets every effect but LookAt.
    std::function<void(const std::vector<int>& ranks)> look_at;
    std::function<void()> read_rings;  // This node's, now.
    // -1: to all other nodes. The message may be lost.
    std::function<void(int node_rank, std::string payload)> send;
    std::function<void()> settled;                   // is_settling() has become false.
    std::function<void(const Stragglers&)> held_up;  // Every kStragglersEvery, and at the end.
  };
  static constexpr auto kStragglersEvery = std::chrono::minutes(10);

  JobWatch(boost::asio::io_context& io, const Limits& limits, Callbacks callbacks);

  void begin(const WatchedRound& round);
  // Ends the judging, once a failure that is held back is explained.
  void end();

  void see(const Event& event);  // An event of this node's ranks.
  void looked();                 // This node has polled its ranks.
  void hear(int node_rank, std::string_view digest, bool is_last, Instant then);

  // When a node's ranks made their calls, on our clock; wrong by at most `error`.
  void arrived(int node_rank, const std::vector<Arrivals>& arrivals, Duration error);

  // What the store's clients wait for; see JobStore. `own_pids`: of this node's workers.
  void keys_awaited(const std::vector<AwaitedKeys>& waits, const std::vector<pid_t>& own_pids);

  // Covers the time since the last report.
  void report_stragglers();

  // Sends a finding to all others, again until confirmed or kNewsMax others came after it.
  void publish(std::string news);

  // True while the attempt's first failure is not explained yet.
  bool is_settling() const { return !held_.empty(); }
  std::string status() const;
  std::string name_of_group(const std::string& id) const { return detector_.name_of_group(id); }
  bool has_ended(int rank) const { return detector_.has_ended(rank); }
  const RemoteNodes::Place* place_of(int rank) const;

 private:
  static constexpr auto kSettleMax = std::chrono::milliseconds(300);
  static constexpr auto kWantAgain = std::chrono::seconds(1);
  static constexpr size_t kNewsMax = 64;
  static constexpr size_t kNewsAtOnce = 8;

  void step(const Event& event);
  void take(const Event& event);
  void settle();
  void settle_if_told();
  void want();
  void tell(int node_rank, size_t index);
  static bool is_held_back(const Event& event, bool& part, bool other);

  const Callbacks callbacks_;
  Detector detector_;
  WatchedRound round_;
  std::optional<RemoteNodes> others_;  // Set in a job of several nodes.
  bool is_watching_ = false;
  bool has_failure_ = false;
  bool is_ending_ = false;    // True if end() waits for an explanation.
  std::vector<Event> held_;   // The first failure and the ends after it.
  std::set<int> last_heard_;  // Nodes that have sent their last message.
  std::vector<int> wanted_;
  std::map<int, std::vector<int>> told_;  // The part of wanted_ last sent to each node.
  Deadline want_again_{};
  bool wanted_is_new_ = false;
  std::deque<std::string> news_;  // The newest findings.
  uint64_t dropped_ = 0;          // Number of older ones.
  bool own_suspended_ = false;
  bool others_suspended_ = false;
  boost::asio::steady_timer settle_limit_;
  StragglerTable stragglers_;
  Deadline next_stragglers_{};
};

}  // namespace muster::hang
