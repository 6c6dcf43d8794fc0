// Invariants of all that a RingReader returns, whatever its ring contains, for unit tests and the
// fuzz target. A violation ends the process, like a sanitizer's finding.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "agent/hang/ring_reader.h"
#include "rendezvous/base/error.h"
#include "rendezvous/ring/ring_clock.h"

namespace muster {

inline Instant ring_now() {
  return Instant(Duration(static_cast<int64_t>(ring::monotonic_ns())));
}

inline bool is_clean(std::string_view text) {
  return std::ranges::none_of(text, [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f;
  });
}

inline void check_sound(const RecordedGroup& group) {
  CHECK(group.handle / ring::kGroups >= 1 && group.handle / ring::kGroups <= 511);
  CHECK(group.state > ring::GroupState::unused && group.state <= ring::GroupState::closed);
  CHECK(group.size >= 1 && group.size <= 1'000'000);
  CHECK(group.own_rank >= 0 && group.own_rank < group.size);
  CHECK(std::max(group.completed, group.started) <= group.called);
  CHECK(group.hashes.size() <= ring::kHashes);
  uint64_t before = 0;
  for (const RecordedHash& hash : group.hashes) {
    CHECK(hash.ordinal > before && hash.ordinal % ring::kHashEvery == 0);
    CHECK(hash.ordinal <= group.called);
    before = hash.ordinal;
  }
  for (const std::string_view text : {group.id, group.name, group.ranks})
    CHECK(is_clean(text) && text.size() <= 3 * 8 * ring::kWordsOfText);
}

// `now`: a time after the reading.
inline void check_sound(const RecordedState& state, Instant now) {
  const auto check_time = [&](Instant time) { CHECK(time >= state.attached && time <= now); };
  CHECK(state.source <= ring::Source::nccl_plugin && state.owner >= 0);
  check_time(state.attached);
  CHECK(state.groups.size() <= ring::kGroups && state.messages.size() <= ring::kPeerCounts);
  for (const RecordedGroup& group : state.groups) {
    check_sound(group);
    check_time(group.state_since);
    check_time(group.called_at);
  }
  for (const RecordedMessages& messages : state.messages) {
    const auto group = std::ranges::find(state.groups, messages.group, &RecordedGroup::handle);
    CHECK(group != state.groups.end());
    CHECK(messages.peer >= -1 && messages.peer < group->size);
    CHECK(messages.called > 0 && messages.completed <= messages.called);
    check_time(messages.called_at);
  }
  CHECK(state.sections.size() <= ring::kSections);
  for (const RecordedSection& section : state.sections) {
    CHECK(is_clean(section.name) && section.name.size() <= 3 * 8 * ring::kWordsOfText);
    check_time(section.entered);
  }
  if (!state.failure) return;
  CHECK(is_clean(state.failure->message) && state.failure->message.size() <= 3 * 1024);
  check_time(state.failure->at);
}

inline void check_sound(const std::vector<RecordedCall>& calls, size_t most, Instant now) {
  CHECK(calls.size() <= std::min(most, ring::kRecords));
  for (const RecordedCall& call : calls) {
    CHECK(call.ordinal >= 1 || is_message(call.call.kind));
    CHECK(call.call.root >= -1 && call.call.root < 1'000'000);
    CHECK(call.call.kind <= ring::kLastCallKind);
    CHECK(call.call.type <= ring::ElementType::boolean);
    CHECK(call.call.reduction <= ring::Reduction::premultiplied_sum);
    CHECK(call.called <= now && call.started.value_or(now) >= call.called);
    CHECK(call.started.value_or(now) <= now && call.completed.value_or(now) <= now);
    CHECK(is_clean(call.site) && call.site.size() <= 3 * 120);
  }
}

}  // namespace muster
