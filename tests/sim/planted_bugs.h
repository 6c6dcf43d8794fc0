// Bugs in the worker group that the simulator must find, and the switch that enables one.
// Test-only: see rendezvous/base/planted.h.
#pragma once

#include <utility>

namespace muster {

enum class PlantedBug {
  none,
  double_start,           // Resume starts a worker that is already being started
  lost_exit,              // a success while other workers are being started is forgotten
  grace_never_ends,       // every countdown line postpones the end of the grace period
  budget_off_by_one,      // one restart more than allowed
  restart_before_reaped,  // the next attempt starts when the workers are gone, but not all processes
};

inline constexpr std::pair<const char*, PlantedBug> kWorkerBugs[] = {
    {"double_start", PlantedBug::double_start},
    {"lost_exit", PlantedBug::lost_exit},
    {"grace_never_ends", PlantedBug::grace_never_ends},
    {"budget_off_by_one", PlantedBug::budget_off_by_one},
    {"restart_before_reaped", PlantedBug::restart_before_reaped},
};

inline PlantedBug& planted_bug_switch() {
  static PlantedBug bug = PlantedBug::none;
  return bug;
}

inline bool is_planted(PlantedBug bug) {
  return planted_bug_switch() == bug;
}

}  // namespace muster
