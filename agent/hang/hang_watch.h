// Feeds the hang detector on a node that runs all ranks of a job: reads their rings, looks at their
// processes, and passes on what the detector finds. The shell around Detector.
//
//   no ring attached     a thread waits for the first attachment (attach_wait.h): no wake-ups
//   from then on         four looks a second at the rings, one a second at the processes of ranks
//                        for which others wait, or that wait; their native call sites are named
//
// Owned by the agent's loop, for all attempts; control loop only. It blocks on nothing but procfs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sys/types.h>

#include "agent/hang/attach_wait.h"
#include "agent/hang/detector.h"
#include "agent/hang/life_look.h"
#include "agent/hang/rings.h"
#include "agent/hang/site_names.h"

namespace muster::hang {

class HangWatch {
 public:
  struct Callbacks {
    std::function<void(const Effect&)> found;  // Gets every effect but LookAt.
    // Whether the rank's processes are held now to read their stacks, which is no state of theirs.
    std::function<bool(int local_rank)> is_held;
  };

  HangWatch(boost::asio::io_context& io, const Rings& rings, SiteNames& site_names,
            const Limits& limits, Callbacks callbacks);

  // ---- an attempt
  // Ranks 0 .. workers - 1 are about to be started, their rings about to be made.
  void begin(int workers);
  void started(int local_rank, pid_t pid);
  void ended(int local_rank, int code);  // ExitStatus::signed_code()
  // Nothing more is judged; the rings may be freed.
  void end();

  void suspended() { step(Suspended{}); }
  void resumed() { step(Resumed{}); }

  // Its processes were held since the last look: two that come after that make a state.
  void was_held(int local_rank);

  // One line: "3 ranks wait for rank 2 in barrier #7 of group 'world', for 4.0 s"; empty: nobody
  // waits.
  std::string status() const;

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

  void step(const Event& event);
  void wait_for_attachment();
  void look_soon();
  void look();
  void look_at_ring(int local_rank, bool has_ended = false);
  void name_sites(int local_rank, const RecordedState& state, std::vector<RecordedCall>& calls);
  void look_at_processes();
  bool is_sound(Worker& worker, const RecordedState& state) const;
  bool clock_jumped();

  boost::asio::io_context& io_;
  const Rings& rings_;
  SiteNames& site_names_;
  const Limits limits_;
  const Callbacks callbacks_;
  Detector detector_;
  std::vector<Worker> workers_;  // By local rank.
  std::vector<int> wanted_;      // Ranks whose processes are looked at.
  int not_started_ = 0;
  uint64_t attempt_ = 0;
  std::optional<AttachWait> attachment_;
  boost::asio::steady_timer timer_;
  Deadline next_processes_{};
  Deadline due_{};     // When the next look is to happen.
  Duration asleep_{};  // The machine's, since it booted.
};

}  // namespace muster::hang
