// Follows an attempt's output until all of it is read, and then runs what waits for that: the next
// step of the job, or its end. Control loop only.
//
//              closed      open       reading     settling [1]
// open()       open        -          -           -
// begin()      -           reading    -           -
// finish()     -           closed     closed [2]  -
// settled()    go on [3]   -          -           closed
//
// [1] All is read or given up, but an explanation of the first failure may be on its way from other
// nodes. [2] Or settling. [3] Runs what when_done() got while nothing was open.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "agent/job/job_recorder.h"

namespace muster {

class Drain {
 public:
  struct Callbacks {
    std::function<void()> read;         // Reads all streams to their ends; finish() answers.
    std::function<bool()> is_settling;  // The first failure is unexplained until settled().
    std::function<void(const AttemptRemains&)> take;  // Gets what the attempt left behind.
  };

  explicit Drain(Callbacks callbacks) : callbacks_(std::move(callbacks)) {}

  void open() { stage_ = Stage::open; }
  bool is_open() const { return stage_ != Stage::closed; }
  // The attempt's workers are gone, or will never be started.
  void begin();
  // All is read; empty `remains`: the rest is given up.
  void finish(const AttemptRemains& remains);
  void settled();
  // Calls `next` once nothing is open or settling, which may be at once.
  void when_done(std::function<void()> next);

 private:
  enum class Stage { closed, open, reading, settling };

  void go_on();

  const Callbacks callbacks_;
  Stage stage_ = Stage::closed;
  std::optional<AttemptRemains> remains_;  // Held until the failure is explained.
  std::vector<std::function<void()>> waiting_;
};

}  // namespace muster
