// Bugs in agreements that the simulator must find, and the switch that enables one. Test-only: see
// rendezvous/base/planted.h.
#pragma once

#include <utility>

namespace muster {

enum class AgreementBug {
  none,
  one_phase,         // the coordinator decides without waiting until all have accepted
  fresh_start,       // a new coordinator ignores what members have accepted
  old_decisions,     // a decision that comes again, after a later one, counts again
  votes_once,        // members do not vote again when a rank is gone
  silent_new_links,  // a rank that has just been linked is not told what is known
};

inline constexpr std::pair<const char*, AgreementBug> kAgreementBugs[] = {
    {"one_phase", AgreementBug::one_phase},
    {"fresh_start", AgreementBug::fresh_start},
    {"old_decisions", AgreementBug::old_decisions},
    {"votes_once", AgreementBug::votes_once},
    {"silent_new_links", AgreementBug::silent_new_links},
};

inline AgreementBug& agreement_bug_switch() {
  static AgreementBug bug = AgreementBug::none;
  return bug;
}

inline bool is_planted(AgreementBug bug) {
  return agreement_bug_switch() == bug;
}

}  // namespace muster
