#include "agent/hang/arrivals.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "rendezvous/base/text.h"
#include "rendezvous/net/field_codec.h"

namespace muster::hang {
namespace {

constexpr uint64_t kSamplesOfNodeMin = 4;
constexpr uint64_t kSamplesOfNodeMax = 128;
constexpr size_t kOpenMax = 256;  // Per group.
// Reading stops at an incomplete blocking call, to count its wait, unless this many followed it.
constexpr uint64_t kCallsPassedMax = ring::kRecords / 4;
constexpr uint64_t kStrideMax = uint64_t{1} << 30;
constexpr auto kStridesHold = std::chrono::seconds(1);

constexpr size_t kArrivalsMax = 1024;  // Per message.
constexpr uint32_t kArrivalTextMax = 128;
constexpr int kCountMax = 1 << 30;
constexpr Duration kAgeMax = std::chrono::hours(24);

// Checks values from a ring, which may hold anything.
bool can_be_told(const Arrivals& one) {
  return one.size >= 1 && one.size <= kCountMax && one.ranks <= one.size &&
         one.mean_blocked <= kAgeMax && one.last_blocked <= kAgeMax;
}

// FNV-1a with the 64-bit finalizer of MurmurHash3: all nodes must choose the same calls.
uint64_t hash_of_call(std::string_view group, uint64_t ordinal) {
  uint64_t hash = fnv1a(group) ^ ordinal;
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdULL;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53ULL;
  return hash ^ hash >> 33;
}

void walk_arrivals(auto& a, Like<Arrivals> auto& m) {
  a.text(m.group, kArrivalTextMax);
  a.text(m.name, kArrivalTextMax);
  a.integer(m.ordinal);
  a.integer(m.number);
  a.integer(m.stride);
  a.number(m.size, 1, kCountMax);
  a.number(m.ranks, 1, kCountMax);
  a.instant(m.mean);
  a.duration(m.mean_blocked);
  a.number(m.last_rank, 0, kCountMax);
  a.instant(m.last);
  a.duration(m.last_blocked);
  a.flag(m.hides_waits);
}

bool is_possible(const Arrivals& one) {
  const auto is_age = [](Instant age) {
    return age >= Instant{} && age.time_since_epoch() <= kAgeMax;
  };
  return can_be_told(one) && std::has_single_bit(one.stride) && one.stride <= kStrideMax &&
         is_age(one.mean) && is_age(one.last) && one.last <= one.mean;
}

}  // namespace

ArrivalSampler::ArrivalSampler(int nodes)
    : samples_(std::clamp(kSamplesOfJob / static_cast<uint64_t>(nodes), kSamplesOfNodeMin,
                          kSamplesOfNodeMax)) {}

void ArrivalSampler::read(int rank, const RecordedState& state, const RingReader& reader) {
  Rank& one = ranks_[rank];
  if (one.position.generation != state.generation) {
    forget_groups(one, {});
    one = {};
    one.position.generation = state.generation;
  }
  know_groups(one, state);
  reader.read_on(one.position,
                 [&](const CallGlance& call) { return note(rank, one, state, call); });
}

// Updates which groups the rank has and how many of this node's ranks are members of each.
void ArrivalSampler::know_groups(Rank& rank, const RecordedState& state) {
  for (const RecordedGroup& group : state.groups) {
    Group& known = rank.groups[group.handle];
    if (known.id.empty()) {
      known = {.id = group.id, .blocked = rank.blocked};
      ++lanes_[group.id].members;
    }
    lanes_[group.id].called = std::max(lanes_[group.id].called, group.called);
  }
  forget_groups(rank, state);
}

// Drops the groups that the rank no longer has.
void ArrivalSampler::forget_groups(Rank& rank, const RecordedState& state) {
  std::erase_if(rank.groups, [&](const auto& known) {
    if (state.group(known.first) != nullptr) return false;
    const auto lane = lanes_.find(known.second.id);
    lane->second.open.clear();  // They would be reported without this rank.
    if (--lane->second.members == 0) lanes_.erase(lane);
    return true;
  });
}

// Returns false to stop the reading before this call.
bool ArrivalSampler::note(int rank, Rank& one, const RecordedState& state, const CallGlance& call) {
  const RecordedGroup* const group = state.group(call.group);
  if (group == nullptr || call.withdrawn || group->is_on_device) return true;
  const bool blocks = call.is_synchronous && !group->completion_is_late;
  if (blocks && !call.completed && state.calls < call.record + kCallsPassedMax) return false;
  Group& known = one.groups[call.group];
  const bool counts = call.is_synchronous && !ring::is_message(call.kind);
  known.read += ring::is_message(call.kind) ? 0 : 1;
  known.synchronous += counts ? 1 : 0;
  // Skips repeats, and each group's first call, which comes after start-up.
  const bool is_next = call.ordinal > std::max<uint64_t>(known.sampled, 1);
  if (counts && is_next) {
    known.sampled = call.ordinal;
    // Calls that were overwritten before they were read count as the others do.
    const double share = known.synchronous / known.read;
    sample(rank, *group, call, one.blocked - known.blocked,
           static_cast<uint64_t>(static_cast<double>(call.ordinal) * share));
  }
  if (blocks && call.completed) one.was_blocked(call.called, *call.completed);
  known.blocked = one.blocked;
  return true;
}

// Counts overlapping waits of a rank's threads once.
void ArrivalSampler::Rank::was_blocked(Instant since, Instant until) {
  since = std::max(since, blocked_until);
  if (until <= since) return;
  blocked += until - since;
  blocked_until = until;
}

void ArrivalSampler::sample(int rank, const RecordedGroup& group, const CallGlance& call,
                            Duration blocked, uint64_t number) {
  Lane& lane = lanes_[group.id];
  if ((hash_of_call(group.id, call.ordinal) & (lane.stride - 1)) != 0) return;
  Arrivals& arrivals = lane.open[call.ordinal];
  if (arrivals.ranks == 0) {
    arrivals.group = group.id;
    arrivals.name = group.name;
    arrivals.ordinal = call.ordinal;
    arrivals.number = number;
    arrivals.size = group.size;
    arrivals.mean = call.called;
    arrivals.mean_blocked = blocked;
    arrivals.hides_waits = group.completion_is_late;
  }
  arrivals.stride = std::max(arrivals.stride, lane.stride);
  ++arrivals.ranks;
  arrivals.mean += (call.called - arrivals.mean) / arrivals.ranks;
  arrivals.mean_blocked += (blocked - arrivals.mean_blocked) / arrivals.ranks;
  if (arrivals.last_rank < 0 || call.called > arrivals.last) {
    arrivals.last_rank = rank;
    arrivals.last = call.called;
    arrivals.last_blocked = blocked;
  }
  if (lane.open.size() > kOpenMax) lane.open.erase(lane.open.begin());
}

std::vector<Arrivals> ArrivalSampler::take(Instant now) {
  std::vector<Arrivals> complete;
  for (auto& [id, lane] : lanes_) {
    std::erase_if(lane.open, [&, &members = lane.members](auto& open) {
      if (open.second.ranks < members) return false;
      if (can_be_told(open.second)) complete.push_back(std::move(open.second));
      return true;
    });
  }
  if (!strides_set_) strides_set_ = now;
  if (now - *strides_set_ >= kStridesHold) {
    set_strides(now - *strides_set_);
    strides_set_ = now;
  }
  return complete;
}

// Powers of two, so that all nodes with smaller strides sample a call that one node samples.
void ArrivalSampler::set_strides(Duration passed) {
  const auto is_busy = [](const auto& one) { return one.second.called > one.second.called_before; };
  const auto busy = static_cast<uint64_t>(std::ranges::count_if(lanes_, is_busy));
  if (busy == 0) return;
  const auto seconds = to_seconds(passed);
  const double samples = std::max(1.0, static_cast<double>(samples_ / busy)) * seconds;
  for (auto& [id, lane] : lanes_) {
    const auto calls =
        static_cast<double>(lane.called - std::exchange(lane.called_before, lane.called));
    lane.stride = 1;
    while (static_cast<double>(lane.stride) * samples < calls && lane.stride < kStrideMax)
      lane.stride *= 2;
  }
}

std::string encode_arrivals(const std::vector<Arrivals>& arrivals, Instant now, size_t most) {
  std::string walked;
  uint32_t count = 0;
  for (; count < std::min(arrivals.size(), kArrivalsMax); ++count) {
    Arrivals one = arrivals[count];
    one.mean = Instant(std::clamp(now - one.mean, Duration(0), kAgeMax));
    one.last = Instant(std::clamp(now - one.last, Duration(0), kAgeMax));
    std::string next;
    FieldWriter writer(next);
    walk_arrivals(writer, one);
    if (sizeof(count) + walked.size() + next.size() > most) break;
    walked += next;
  }
  std::string bytes;
  FieldWriter(bytes).integer(count);
  return bytes + walked;
}

std::optional<std::vector<Arrivals>> decode_arrivals(std::string_view bytes, Instant then) {
  std::vector<Arrivals> arrivals;
  FieldReader reader(bytes);
  reader.list(arrivals, kArrivalsMax, [&](Arrivals& one) { walk_arrivals(reader, one); });
  if (reader.end() != nullptr || !std::ranges::all_of(arrivals, is_possible)) return std::nullopt;
  for (Arrivals& one : arrivals) {
    one.mean = then - one.mean.time_since_epoch();
    one.last = then - one.last.time_since_epoch();
  }
  return arrivals;
}

}  // namespace muster::hang
