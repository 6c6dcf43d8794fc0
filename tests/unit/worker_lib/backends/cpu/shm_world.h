// Ranks of one node without processes: threads that share one mapping of a segment, so that a
// thread sanitizer sees every access of all of them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/unit/worker_lib/backends/backend_ranks.h"
#include "worker_lib/backends/cpu/segment.h"
#include "worker_lib/backends/cpu/shm_group.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"

namespace muster::worker::shm_test {

// Global ranks are ten times the group's ranks, so that a mix-up of the two shows.
inline Members members_of(int ranks, int me = 0) {
  Members members;
  for (int rank = 0; rank < ranks; ++rank) {
    members.peers.push_back({GlobalRank{rank * 10}, "node", "host", 4000 + rank, "127.0.0.1"});
  }
  members.me = me;
  return members;
}

// "done", or "timeout [10 20]: ...".
inline std::string said(const Outcome<>& outcome) {
  if (outcome) return "done";
  std::string ranks;
  for (const GlobalRank rank : outcome.error().ranks)
    ranks += fmt::format(" {}", rank.value);
  return fmt::format("{} [{}]: {}", name_of(outcome.error().code),
                     ranks.empty() ? "" : ranks.substr(1), outcome.error().message);
}

class World {
 public:
  explicit World(SegmentShape shape) : segment_(*Segment::create(shape)) {
    for (int rank = 0; rank < shape.ranks; ++rank) {
      groups_.push_back(std::make_unique<ShmGroup>(segment_, members_of(shape.ranks, rank)));
    }
  }
  explicit World(int ranks) : World(SegmentShape{.ranks = ranks}) {}

  int size() const { return static_cast<int>(groups_.size()); }
  ShmGroup& operator[](int rank) { return *groups_[static_cast<size_t>(rank)]; }
  Segment& segment() { return *segment_; }

  // Runs `body` as every rank at the same time.
  void each(const std::function<void(int, ShmGroup&)>& body) {
    on_each_rank(size(), [&](int rank) { body(rank, (*this)[rank]); });
  }

  // Returns how each rank's call ended.
  std::vector<std::string> outcomes(const std::function<Outcome<>(int, ShmGroup&)>& call) {
    std::vector<std::string> words(groups_.size());
    each([&](int rank, ShmGroup& group) {
      words[static_cast<size_t>(rank)] = said(call(rank, group));
    });
    return words;
  }

 private:
  std::shared_ptr<Segment> segment_;
  std::vector<std::unique_ptr<ShmGroup>> groups_;
};

}  // namespace muster::worker::shm_test
