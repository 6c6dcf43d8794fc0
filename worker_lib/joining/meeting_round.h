// One round of a meeting, at a store that has been found: this rank describes itself, and learns
// about the others. The keys are those that meeting.h lists. Blocking calls on one thread; `self`
// and `options` must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/store/store_client.h"
#include "worker_lib/failure.h"
#include "worker_lib/joining/host_store.h"
#include "worker_lib/joining/identity.h"
#include "worker_lib/joining/meeting.h"
#include "worker_lib/joining/rank_record.h"

namespace muster::worker {

// Holds the run id of the job that the store belongs to, set by the first rank that has one.
inline constexpr std::string_view kRunIdKey = "muster/run_id";

class MeetingRound {
 public:
  MeetingRound(const Identity& self, const MeetingOptions& options, StoreClient store,
               StoreAccess access, std::shared_ptr<HostStore> hosted);

  // Call once. Returns what meet() does.
  Outcome<Met> run(const RankRecord& me);

  // Whether run() failed because the store is gone rather than because of its answers.
  bool lost_store() const { return !store_.connected(); }

 private:
  Outcome<> check_job();
  Outcome<> claim_rank(const RankRecord& me);
  Outcome<> enter(const RankRecord& me);
  Outcome<> contradict(const std::string& theirs);
  void close_generation(const std::string& state, const std::string& why);
  Outcome<Met> gather();
  Outcome<Met> wait_for_everyone();
  // Covers the ranks below `asked`, those that could be checked in time.
  Outcome<std::vector<GlobalRank>> find_missing(int& asked);
  std::string missing_words(const std::vector<GlobalRank>& missing, int asked) const;
  void say_who_is_missing();
  Outcome<Met> give_up();
  Outcome<Met> read_everyone(const std::string& said);

  const Identity& self_;
  const MeetingOptions& options_;
  std::string prefix_;
  StoreClient everything_;  // Without the prefix.
  StoreClient root_;
  StoreClient store_;
  StoreAccess access_;
  std::shared_ptr<HostStore> hosted_;
  int64_t generation_ = 0;
  std::string node_;                  // As others know it.
  std::optional<RankRecord> former_;  // The previous owner of this rank.
};

}  // namespace muster::worker
