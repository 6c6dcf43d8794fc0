// The bugs that the simulator must be able to find, and the switch that enables one. Test-only: see
// rendezvous/base/planted.h.
#pragma once

namespace muster {

enum class PlantedBug {
  none,
  double_start,           // Resume starts the worker again that is already being started
  lost_exit,              // a success that comes while other workers are being started is forgotten
  grace_never_ends,       // every countdown line postpones the end of the grace period
  budget_off_by_one,      // one restart more than allowed
  restart_before_reaped,  // the next attempt starts when the workers, not all processes, are gone
};

inline PlantedBug& planted_bug_switch() {
  static PlantedBug bug = PlantedBug::none;
  return bug;
}

inline bool is_planted(PlantedBug bug) {
  return planted_bug_switch() == bug;
}

}  // namespace muster
