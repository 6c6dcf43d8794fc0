// Bugs in the choice of a job's host that the simulator must find, and the switch that enables one.
// Test-only: see rendezvous/base/planted.h.
#pragma once

#include <utility>

namespace muster {

enum class HostingBug {
  none,
  blind_retry,       // a write is repeated as if the first try had certainly not arrived
  no_fence,          // any node that knows the round before may write a round, host or not
  stranger_follows,  // a node outside the newest round follows its host as a member does
  lease_off_by_one,  // a host's lease ends one beat too early
  watch_gap,         // a host that came and went between two polls is missed
};

inline constexpr std::pair<const char*, HostingBug> kHostingBugs[] = {
    {"blind_retry", HostingBug::blind_retry},
    {"no_fence", HostingBug::no_fence},
    {"stranger_follows", HostingBug::stranger_follows},
    {"lease_off_by_one", HostingBug::lease_off_by_one},
    {"watch_gap", HostingBug::watch_gap},
};

inline HostingBug& hosting_bug_switch() {
  static HostingBug bug = HostingBug::none;
  return bug;
}

inline bool is_planted(HostingBug bug) {
  return hosting_bug_switch() == bug;
}

}  // namespace muster
