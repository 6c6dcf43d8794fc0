#include "agent/hang/ring_digest.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "agent/hang/rank_state.h"
#include "rendezvous/base/text.h"

namespace muster::hang {
namespace {

constexpr int kListedMax = 1'000'000;

// Parses "0-3,7"; empty: anything else.
std::vector<int> members_in(std::string_view text) {
  std::vector<int> ranks;
  if (text.empty()) return ranks;
  for (std::string_view run : split(text, ',')) {
    const std::optional<int> first = take_number<int>(run);
    std::optional<int> last = first;
    if (run.starts_with('-')) {
      run.remove_prefix(1);
      last = take_number<int>(run);
    }
    if (!first || !last || !run.empty() || *first < 0 || *last < *first || *last >= kListedMax ||
        ranks.size() + static_cast<size_t>(*last - *first) >= kListedMax) {
      return {};
    }
    for (int rank = *first; rank <= *last; ++rank)
      ranks.push_back(rank);
  }
  return ranks;
}

GroupPhase phase_of(ring::GroupState state) {
  if (state == ring::GroupState::forming) return GroupPhase::forming;
  if (state == ring::GroupState::failed) return GroupPhase::failed;
  return state == ring::GroupState::closed ? GroupPhase::closed : GroupPhase::ready;
}

GroupDigest group_digest(const RecordedGroup& recorded, bool is_stale) {
  GroupDigest group;
  group.id = recorded.id;
  group.name = recorded.name;
  group.ranks = members_in(recorded.ranks);
  if (group.ranks.size() != static_cast<size_t>(recorded.size)) group.ranks.clear();
  group.size = recorded.size;
  group.own_rank = recorded.own_rank;
  group.phase = phase_of(recorded.state);
  group.since = recorded.state_since;
  group.called = recorded.called;
  group.completed = recorded.completed;
  group.completion_is_late = recorded.completion_is_late;
  group.completion_is_unknown =
      recorded.completion_is_unknown || (is_stale && !recorded.is_on_device);
  group.is_on_device = recorded.is_on_device;
  group.completion_is_unseen = recorded.is_on_device && recorded.completed < recorded.called &&
                               recorded.started <= recorded.completed;
  for (const RecordedHash& hash : recorded.hashes)
    group.hashes.push_back({hash.ordinal, hash.hash});
  return group;
}

// A recorder that looks finds only then that a call raised an exception before it was made.
bool may_be_withdrawn(const RecordedCall& call, const RecordedState& state, bool is_stale) {
  return state.looked && !is_stale && !call.completed && call.called > *state.looked;
}

}  // namespace

RankDigest digest_of(int rank, const RecordedState& state, const std::vector<RecordedCall>& calls,
                     Instant now) {
  RankDigest digest;
  digest.rank = rank;
  digest.generation = state.generation;
  digest.process = state.owner;
  digest.source = static_cast<int>(state.source);
  digest.at = now;
  // Only muster's library knows why; others first report that a connection broke.
  digest.has_failed = state.failure.has_value() && state.source == ring::Source::worker_lib;
  if (!state.sections.empty()) digest.section = state.sections.back().name;

  const bool is_stale = completions_are_stale(state, now);
  std::map<uint32_t, size_t> places;  // By handle.
  std::map<uint32_t, std::string> ids;
  for (const RecordedGroup& recorded : state.groups) {
    if (recorded.calls_are_unknown) continue;  // Calls that are not recorded must not look late.
    // Shows the first of several members in one process (with a GPU each).
    if (find_group(digest, recorded.id) != nullptr) continue;
    ids[recorded.handle] = recorded.id;
    places[recorded.handle] = digest.groups.size();
    digest.groups.push_back(group_digest(recorded, is_stale));
  }
  for (const RecordedMessages& recorded : state.messages) {
    if (!places.contains(recorded.group)) continue;
    const GroupDigest& group = digest.groups[places[recorded.group]];
    digest.messages.push_back({.group = ids[recorded.group],
                               .peer = recorded.peer,
                               .is_recv = recorded.is_recv,
                               .called = recorded.called,
                               .completed = recorded.completed,
                               .is_on_device = group.is_on_device,
                               .completion_is_unseen = group.is_on_device,
                               .called_at = recorded.called_at,
                               .site = {}});
  }
  for (const RecordedCall& call : calls) {
    const auto place = places.find(call.group);
    if (place == places.end() || call.withdrawn) continue;
    GroupDigest& group = digest.groups[place->second];
    if (ring::is_message(call.call.kind)) {
      const bool is_recv = call.call.kind == ring::CallKind::recv;
      const auto of_peer = std::ranges::find_if(digest.messages, [&](const MessageDigest& one) {
        return one.group == group.id && one.peer == call.call.root && one.is_recv == is_recv;
      });
      if (of_peer == digest.messages.end() || of_peer->called != call.ordinal) continue;
      of_peer->is_synchronous = call.call.is_synchronous && !is_stale;
      of_peer->site = call.site;
    } else if (call.ordinal <= group.called) {
      group.calls.push_back({call.ordinal, call.call, call.called, call.site, call.failed,
                             may_be_withdrawn(call, state, is_stale)});
    }
  }
  return digest;
}

}  // namespace muster::hang
