// Reads the rings of a node's ranks, samples their processes, and reports what it sees as events of
// a Detector, which may run on another node.
//
//   no ring attached     a thread waits for the first attachment (attach_wait.h): no wake-ups
//   from then on         polls the rings four times a second, and once a second the processes of
//                        ranks that wait or are waited for; names their native call sites
//
// Ranks are global. For all attempts; control loop only. It blocks on nothing but procfs.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sys/types.h>

#include "agent/hang/attach_wait.h"
#include "agent/hang/detector_events.h"
#include "agent/hang/life.h"
#include "agent/hang/rings.h"
#include "agent/hang/site_names.h"

namespace muster::hang {

class NodeWatch {
 public:
  struct Callbacks {
    // Gets Digested, LifeSeen, Ended, Suspended, Resumed and Jumped.
    std::function<void(const Event&)> seen;
    // A rank's ring, at each poll; its owner is sound (Worker::owner).
    std::function<void(int rank, const RecordedState& state, const RingReader& reader)> read;
    std::function<void()> looked;  // A poll is complete.
    // True while our stack reader has stopped the rank; such a stop must not be reported.
    std::function<bool(int rank)> is_held;
  };

  // `between`: time between two samples of a process.
  NodeWatch(boost::asio::io_context& io, const Rings& rings, SiteNames& site_names,
            Duration between, Callbacks callbacks);

  // ---- an attempt
  // Call before the ranks from `base_rank` on are started and their rings made.
  void begin(int base_rank, int workers);
  void started(int rank, pid_t pid);
  void ended(int rank, int code);  // ExitStatus::signed_code()
  // Reads all rings a last time; they may be freed after it.
  void end();

  void suspended() { callbacks_.seen(Suspended{}); }
  void resumed() { callbacks_.seen(Resumed{}); }

  void read_rings() { look_at_rings(-1); }
  // Samples the processes of these ranks from now on; ignores those of other nodes.
  void look_at(const std::vector<int>& ranks);
  // Drops the last sample of a rank that we stopped: a state takes two samples after that.
  void was_held(int rank) {
    if (Worker* const one = worker(rank)) one->look.reset();
  }
  std::vector<pid_t> pids() const;  // By local rank; 0: not running.

 private:
  struct Worker {
    pid_t pid = 0;  // 0: not running.
    // The process that records; sound if it is the worker or below it.
    pid_t owner = 0;
    uint64_t generation = 0;
    bool owner_is_sound = false;
    std::optional<LifeLook> look;
    // Native call sites by address; empty: requested.
    std::map<uint64_t, std::string> sites;
  };

  void wait_for_attachment();
  void begin_looking();
  void look_soon();
  void look();
  void look_at_rings(int ended);
  void look_at_ring(int rank, bool has_ended);
  void name_sites(int rank, const RecordedState& state, std::vector<RecordedCall>& calls);
  void look_at_processes();
  bool is_sound(Worker& worker, const RecordedState& state) const;
  bool clock_jumped();
  Worker* worker(int rank);  // nullptr: not of this node.

  boost::asio::io_context& io_;
  const Rings& rings_;
  SiteNames& site_names_;
  const Duration between_;
  const Callbacks callbacks_;
  int base_rank_ = 0;
  std::vector<Worker> workers_;  // By local rank.
  std::vector<int> wanted_;      // Ranks whose processes are sampled.
  int not_started_ = 0;
  bool is_looking_ = false;
  uint64_t attempt_ = 0;
  std::optional<AttachWait> attachment_;
  boost::asio::steady_timer timer_;
  Deadline next_processes_{};
  Deadline due_{};     // When the next poll is due.
  Duration asleep_{};  // Time for which the machine was suspended.
};

}  // namespace muster::hang
