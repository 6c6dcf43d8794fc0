// The bugs of the rendezvous that the simulator must be able to find, and the switch that turns one
// on. Test-only: see rendezvous/membership/planted.h.
#pragma once

namespace muster {

enum class MembershipBug {
  none,
  skipped_epoch_check,    // a report of an old epoch is believed of the current one
  double_start,           // a round forms before everyone of the old epoch is reaped
  lease_off_by_one,       // an agent that beats in time is lost
  failure_counted_twice,  // a failure that is reported again is taken from the budget again
  lost_resend,            // a failure is reported once, whether or not it arrived
};

inline MembershipBug& membership_bug_switch() {
  static MembershipBug bug = MembershipBug::none;
  return bug;
}

}  // namespace muster
