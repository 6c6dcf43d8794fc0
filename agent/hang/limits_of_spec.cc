#include "agent/hang/limits_of_spec.h"

#include <algorithm>
#include <chrono>

#include "rendezvous/base/error.h"

namespace muster::hang {
namespace {

Duration from_seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Limits limits_of(const HangSpec& spec) {
  CHECK(!spec.off);
  Limits limits;
  limits.hang_timeout = from_seconds(spec.hang_timeout_s);
  limits.notice_after = std::min(limits.notice_after, limits.hang_timeout / 12 * 10);
  limits.look = std::min(limits.look, limits.hang_timeout / 10);
  if (spec.busy_timeout_s) limits.busy_timeout = from_seconds(*spec.busy_timeout_s);
  return limits;
}

}  // namespace muster::hang
