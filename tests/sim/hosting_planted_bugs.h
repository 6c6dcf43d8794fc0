// The bugs of the decision who hosts a job that the simulator must be able to find, and the switch
// that enables one. Test-only: see rendezvous/base/planted.h.
#pragma once

namespace muster {

enum class HostingBug {
  none,
  blind_retry,       // a write is tried again as if the first try had certainly not arrived
  no_fence,          // a round is written by whoever knows the one before, host or not
  stranger_follows,  // a node that is not of the newest round follows its host as a member does
  lease_off_by_one,  // a host's lease is over one beat too early
  watch_gap,         // a host that came and went between two looks has never been there
};

inline HostingBug& hosting_bug_switch() {
  static HostingBug bug = HostingBug::none;
  return bug;
}

inline bool is_planted(HostingBug bug) {
  return hosting_bug_switch() == bug;
}

}  // namespace muster
