// Bugs in the rendezvous that the simulator must find, and the switch that enables one. Test-only:
// see rendezvous/base/planted.h.
#pragma once

#include <utility>

namespace muster {

enum class MembershipBug {
  none,
  skipped_epoch_check,    // a report of an old epoch counts for the current one
  double_start,           // a round forms before all workers of the old epoch are reaped
  lease_off_by_one,       // an agent whose heartbeats arrive in time counts as lost
  failure_counted_twice,  // a failure that is reported again is charged to the budget again
  lost_resend,            // a failure is reported once, even if the report is lost
  flap_is_a_loss,         // a broken connection counts as a loss even if the node is needed
  no_self_doubt,          // a host that is cut off blames the other nodes
  no_patience,            // an agent gives up its round as soon as it reconnects
};

inline constexpr std::pair<const char*, MembershipBug> kMembershipBugs[] = {
    {"skipped_epoch_check", MembershipBug::skipped_epoch_check},
    {"double_start", MembershipBug::double_start},
    {"lease_off_by_one", MembershipBug::lease_off_by_one},
    {"failure_counted_twice", MembershipBug::failure_counted_twice},
    {"lost_resend", MembershipBug::lost_resend},
    {"flap_is_a_loss", MembershipBug::flap_is_a_loss},
    {"no_self_doubt", MembershipBug::no_self_doubt},
    {"no_patience", MembershipBug::no_patience},
};

inline MembershipBug& membership_bug_switch() {
  static MembershipBug bug = MembershipBug::none;
  return bug;
}

inline bool is_planted(MembershipBug bug) {
  return membership_bug_switch() == bug;
}

}  // namespace muster
