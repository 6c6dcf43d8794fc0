// Reads the rings of a node's ranks, looks at their processes, and says what it sees as the events
// of a Detector, which may run on another node.
//
//   no ring attached     a thread waits for the first attachment (attach_wait.h): no wake-ups
//   from then on         four looks a second at the rings, one a second at the processes of ranks
//                        for which others wait, or that wait; their native call sites are named
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
    // The ring of a rank, at each look; `state` is of a sound owner.
    std::function<void(int rank, const RecordedState& state, const RingReader& reader)> read;
    std::function<void()> looked;  // A look is complete.
    // Whether the rank's processes are held now to read their stacks, which is no state of theirs.
    std::function<bool(int rank)> is_held;
  };

  // `between`: two looks at a process.
  NodeWatch(boost::asio::io_context& io, const Rings& rings, SiteNames& site_names,
            Duration between, Callbacks callbacks);

  // ---- an attempt
  // Ranks from `base_rank` on are about to be started, their rings about to be made.
  void begin(int base_rank, int workers);
  void started(int rank, pid_t pid);
  void ended(int rank, int code);  // ExitStatus::signed_code()
  // Reads all rings a last time. They may be freed after it.
  void end();

  void suspended() { callbacks_.seen(Suspended{}); }
  void resumed() { callbacks_.seen(Resumed{}); }

  void read_rings() { look_at_rings(-1); }
  // From now on, looks at the processes of these ranks, of those that are of this node.
  void look_at(const std::vector<int>& ranks);
  // Its processes were held since the last look: two that come after that make a state.
  void was_held(int rank);

 private:
  struct Worker {
    pid_t pid = 0;  // 0: not running.
    // The process that records, and whether it is the worker or below it.
    pid_t owner = 0;
    uint64_t generation = 0;
    bool owner_is_sound = false;
    std::optional<LifeLook> look;
    // Names of native call sites, by address; empty: it was asked for.
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
  Worker* worker(int rank);  // nullptr: it is not of this node.

  boost::asio::io_context& io_;
  const Rings& rings_;
  SiteNames& site_names_;
  const Duration between_;
  const Callbacks callbacks_;
  int base_rank_ = 0;
  std::vector<Worker> workers_;  // By local rank.
  std::vector<int> wanted_;      // Ranks whose processes are looked at.
  int not_started_ = 0;
  bool is_looking_ = false;
  uint64_t attempt_ = 0;
  std::optional<AttachWait> attachment_;
  boost::asio::steady_timer timer_;
  Deadline next_processes_{};
  Deadline due_{};     // When the next look is to happen.
  Duration asleep_{};  // The machine's, since it booted.
};

}  // namespace muster::hang
