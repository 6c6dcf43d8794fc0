// Member: its status and its lines for people.
#include <algorithm>

#include <fmt/format.h>

#include "rendezvous/membership/member.h"
#include "rendezvous/membership/membership_text.h"

namespace muster {

using membership::Phase;

std::string Member::waiting_text(Instant now) const {
  if (in_round() && !going()) {
    return fmt::format("no sign of the host of the job at {} for {} ({}); waiting up to {}",
                       options_.endpoint, membership::full_seconds(now - heard_at_), trouble_,
                       membership::whole_seconds(silent_at() - heard_at_));
  }
  std::string text =
      fmt::format("waiting for the host of the job at {}: {}", options_.endpoint, trouble_);
  if (going() || give_up_at_ == kNever) return text;
  const Duration left = std::max(Duration::zero(), give_up_at_ - now);
  return text + fmt::format("; gives up in {}", membership::whole_seconds(left));
}

std::string Member::no_host_text() const {
  if (host_is_gone_) {
    return fmt::format("the host of the job at {} has ended ({}), and did not return within {}",
                       options_.endpoint, trouble_, membership::whole_seconds(2 * lease_));
  }
  return fmt::format(
      "no contact with the host of the job at {} for {} ({}): {}; {}", options_.endpoint,
      membership::whole_seconds(reach_timeout()),
      reach_timeout() == options_.join.join_timeout ? "--start-timeout" : "read_timeout", trouble_,
      options_.remedy);
}

std::string Member::phase_text() const {
  switch (report_.phase) {
    case Phase::ready:
      return wait_text_.empty() ? "waiting for the round to form"
                                : "waiting for the round to form: " + wait_text_;
    case Phase::running:
      return fmt::format("in round {} as node {} of {}", report_.epoch, join_.last_rank,
                         join_.last_nodes);
    case Phase::stopping:
      return fmt::format("stopping the workers of round {}", report_.epoch);
    case Phase::testified:
      return fmt::format("the workers of round {} are gone", report_.epoch);
    case Phase::done:
      return fmt::format("done with round {}, waiting for the other nodes", report_.epoch);
    case Phase::leaving:
      break;
  }
  return report_.reaped ? "leaving" : "leaving, stopping the workers";
}

std::string Member::status(Instant now) const {
  if (link_ == Link::idle) return "not begun";
  if (link_ == Link::over) return "over";
  const std::string phase = ended_ ? "the job has ended" : phase_text();
  if (link_ == Link::joined) return phase;
  return phase + "; " + waiting_text(now);
}

}  // namespace muster
