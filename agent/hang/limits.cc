#include "agent/hang/limits.h"

#include <algorithm>
#include <bit>

#include "agent/launch_spec.h"
#include "rendezvous/base/error.h"

namespace muster::hang {
namespace {

constexpr int kFactorMax = 1024;

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

LimitKey limit_key(const std::string& group, const ring::Call& call) {
  const uint64_t bytes = call.count * std::max<uint64_t>(1, ring::bytes_of(call.type));
  return {group, call.kind, call.is_v ? 0 : static_cast<int>(std::bit_width(bytes))};
}

const LearntLimits::Learnt& LearntLimits::of(const LimitKey& key) const {
  static const Learnt nothing;
  const auto found = learnt_.find(key);
  return found == learnt_.end() ? nothing : found->second;
}

Duration LearntLimits::double_hang(const LimitKey& key) {
  int& factor = learnt_[key].hang_factor;
  factor = std::min(2 * factor, kFactorMax);
  return hang(key);
}

Duration LearntLimits::double_busy(const LimitKey& key) {
  int& factor = learnt_[key].busy_factor;
  factor = std::min(2 * factor, kFactorMax);
  return busy(key);
}

void LearntLimits::forget_groups(const std::function<bool(const std::string&)>& kept) {
  std::erase_if(learnt_, [&](const auto& entry) { return !kept(entry.first.group); });
}

}  // namespace muster::hang
