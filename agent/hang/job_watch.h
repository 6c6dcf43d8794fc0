// The hang detector of a job, on the node with rank 0: takes what this node's NodeWatch sees and
// what the other nodes say (node_reporter.h), tells them which processes to look at, and tells all
// of them what is found. The shell around Detector.
//
// The first failure of a worker ends the watch, and may be explained by calls that other nodes have
// not told of yet: the end is held back until each of them has sent its last message, which it does
// as it begins to stop its own workers, or for kSettleMax.
//
// A job whose workers all succeed ends as soon as its nodes have said so, and with it the watch:
// each last message is answered, and a node says that it is done once all its ranks were in such an
// answer (HangWatch::when_judged), so that a mismatch in the last calls is found and told.
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

// The part of a round that the watch has to know.
struct WatchedRound {
  int node_rank = 0;
  int nodes = 1;
  int base_rank = 0;
  int workers = 1;  // On this node.
  int world_size = 1;
  std::string host;  // This node's own name for itself.
};

class JobWatch {
 public:
  struct Callbacks {
    std::function<void(const Effect&)> found;  // Gets every effect but LookAt.
    std::function<void(const std::vector<int>& ranks)> look_at;
    std::function<void()> read_rings;  // Of this node, now.
    // To the node of that rank; -1: to all others. It may be lost.
    std::function<void(int node_rank, std::string payload)> send;
    std::function<void()> settled;                   // is_settling() was true, and no longer is.
    std::function<void(const Stragglers&)> held_up;  // Each kStragglersEvery, and at the end.
  };
  static constexpr auto kStragglersEvery = std::chrono::minutes(10);

  JobWatch(boost::asio::io_context& io, const Limits& limits, Callbacks callbacks);

  void begin(const WatchedRound& round);
  // Nothing more is judged, once what has ended is explained.
  void end();

  void see(const Event& event);  // Of this node's ranks.
  void looked();                 // This node has looked at its ranks.
  void hear(int node_rank, std::string_view digest, bool is_last, Instant then);

  // When the ranks of a node made their calls, in our clock, and how wrong that may be.
  void arrived(int node_rank, const std::vector<Arrivals>& arrivals, Duration error);

  // Of the time since it was last called.
  void report_stragglers();

  // Tells all other nodes, again until they have heard it, or kNewsMax others came after it.
  void publish(std::string news);

  // Whether the first failure of the attempt is not explained yet.
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
  std::optional<RemoteNodes> others_;  // Of a job of several nodes.
  bool is_watching_ = false;
  bool has_failure_ = false;
  bool is_ending_ = false;    // As soon as what has ended is explained.
  std::vector<Event> held_;   // The first failure, and the ends after it.
  std::set<int> last_heard_;  // Nodes that have sent their last message.
  std::vector<int> wanted_;
  std::map<int, std::vector<int>> told_;  // The part of it that each node was told last.
  Deadline want_again_{};
  bool wanted_is_new_ = false;
  std::deque<std::string> news_;  // The newest.
  uint64_t dropped_ = 0;          // Older ones.
  bool own_suspended_ = false;
  bool others_suspended_ = false;
  boost::asio::steady_timer settle_limit_;
  StragglerTable stragglers_;
  Deadline next_stragglers_{};
};

}  // namespace muster::hang
