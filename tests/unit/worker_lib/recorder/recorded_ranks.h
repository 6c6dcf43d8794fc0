// Ranks that are threads, each with a recorder on a ring of its own, and what a ring shows, in
// words.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "rendezvous/ring/call_rules.h"
#include "rendezvous/ring/ring_layout.h"
#include "tests/unit/rendezvous/ring/ring_harness.h"
#include "worker_lib/group/group_host.h"
#include "worker_lib/recorder/recorder.h"

namespace muster::worker::recorder_test {

struct SeenGroup {
  int32_t handle = -1;
  std::string text;  // "world (world) of ranks 0-1, 0 of 2: ready"
  uint64_t called = 0;
  uint64_t launched = 0;
  uint64_t completed = 0;
  uint64_t hash = 0;
  bool completion_is_late = false;
};

inline const char* name_of_state(uint64_t state) {
  constexpr std::array kNames{"unused", "forming", "ready", "failed", "closed"};
  return kNames.at(state);
}

// All groups that the ring shows, in the order of their entries.
inline std::vector<std::pair<std::string, SeenGroup>> groups_of(const ring::Ring& ring) {
  std::vector<std::pair<std::string, SeenGroup>> groups;
  for (size_t i = 0; i < ring::kGroups; ++i) {
    const ring::Group& group = ring.groups[i];
    const uint64_t state = group.state;
    if (state == 0) continue;
    const std::string id = ring::text_in(group.id, ring::kWordsOfText);
    const SeenGroup seen{
        .handle = static_cast<int32_t>(i + (state >> 8) * ring::kGroups),
        .text = fmt::format("{} ({}) of ranks {}, {} of {}: {}", id,
                            ring::text_in(group.name, ring::kWordsOfText),
                            ring::text_in(group.ranks, ring::kWordsOfText), group.own_rank.load(),
                            group.size.load(), name_of_state(state & 0xff)),
        .called = group.called,
        .launched = group.launched,
        .completed = group.completed,
        .hash = group.running_hash,
        .completion_is_late = (group.flags & ring::kCompletionIsLate) != 0};
    groups.emplace_back(id, seen);
  }
  return groups;
}

// The group with this id.
inline SeenGroup group_in(const ring::Ring& ring, std::string_view id) {
  for (const auto& [known, group] : groups_of(ring)) {
    if (known == id) return group;
  }
  ADD_FAILURE() << "no group " << id;
  return {};
}

inline std::vector<std::string> group_texts(const ring::Ring& ring) {
  std::vector<std::string> texts;
  for (const auto& [id, group] : groups_of(ring))
    texts.push_back(group.text);
  return texts;
}

// "3 all_reduce (sum) of 2 int64", then any of: "begun" (not awaited), "tag 7", "pending", "failed"
// and "withdrawn".
inline std::string text_of(const ring::SeenRecord& record) {
  std::string text = fmt::format("{} {}", record.ordinal, ring::describe(record.call));
  if (!record.call.is_synchronous) text += ", begun";
  if (record.tag != 0) text += fmt::format(", tag {}", record.tag);
  if ((record.flags & ring::kFailed) != 0) text += ", failed";
  if ((record.flags & ring::kWithdrawn) != 0) return text + ", withdrawn";
  return record.completed == 0 ? text + ", pending" : text;
}

// The records of one group, in their order.
inline std::vector<ring::SeenRecord> records_of(const ring::Ring& ring, std::string_view id) {
  const int32_t handle = group_in(ring, id).handle;
  std::vector<ring::SeenRecord> records;
  for (uint64_t i = 0; i < ring.head.next_record; ++i) {
    const auto seen = ring::read_record(ring.records[i]);
    if (seen && seen->group == handle) records.push_back(*seen);
  }
  return records;
}

inline std::vector<std::string> call_texts(const ring::Ring& ring, std::string_view id) {
  std::vector<std::string> texts;
  for (const ring::SeenRecord& record : records_of(ring, id))
    texts.push_back(text_of(record));
  return texts;
}

inline uint64_t site_address(const ring::Ring& ring, const ring::SeenRecord& record) {
  return record.site < ring::kSites ? ring.sites[record.site].address.load() : 0;
}

// "send to 1: 2 called, 1 completed"
inline std::vector<std::string> message_counts(const ring::Ring& ring) {
  std::vector<std::string> texts;
  for (const ring::PeerCount& count : ring.peers) {
    const uint64_t key = count.key;
    if (key == 0) continue;
    const int peer = static_cast<int>(static_cast<uint32_t>(key)) - 1;
    const bool is_recv = (key >> 62 & 1) != 0;
    texts.push_back(fmt::format("{} {}: {} called, {} completed", is_recv ? "recv from" : "send to",
                                peer, count.called.load(), count.completed.load()));
  }
  std::ranges::sort(texts);
  return texts;
}

inline std::string failure_text(const ring::Ring& ring) {
  return ring.notes.failed_ticks == 0 ? "" : ring::text_in(ring.notes.failure, 128);
}

inline std::vector<std::string> section_texts(const ring::Ring& ring) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < std::min<uint64_t>(ring.notes.depth, ring::kSections); ++i)
    texts.push_back(ring::text_in(ring.notes.sections[i], ring::kWordsOfText));
  return texts;
}

// One rank's ring and recorder. Must outlive the groups that record in it.
struct RecordedRank {
  ring::TestRing ring;
  Recorder recorder{ring.attach()};
};

class RecordedRanks {
 public:
  explicit RecordedRanks(size_t ranks) {
    for (size_t rank = 0; rank < ranks; ++rank)
      ranks_.push_back(std::make_unique<RecordedRank>());
  }
  // The `adjust` of a FakeJob.
  auto adjust() {
    return [this](GroupHost& host) {
      host.recorder = &ranks_[static_cast<size_t>(host.world.me)]->recorder;
    };
  }
  Recorder& recorder(size_t rank) { return ranks_[rank]->recorder; }
  const ring::Ring& operator[](size_t rank) const { return *ranks_[rank]->ring; }

 private:
  std::vector<std::unique_ptr<RecordedRank>> ranks_;
};

}  // namespace muster::worker::recorder_test
