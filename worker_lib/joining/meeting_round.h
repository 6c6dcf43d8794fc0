// One round of a meeting, at a store that has been found: this rank describes itself and reads the
// others' descriptions (keys: meeting.h). Blocking; one thread. `self` and `options` must outlive
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/store/store_client.h"
#include "worker_lib/failure.h"
#include "worker_lib/joining/identity.h"
#include "worker_lib/joining/meeting.h"
#include "worker_lib/joining/rank_record.h"

namespace muster::worker {

// Holds the run id of the job that the store belongs to, set by the first rank that has one.
inline constexpr std::string_view kRunIdKey = "muster/run_id";

class MeetingRound {
 public:
  // `address`: this rank's, for other nodes.
  MeetingRound(const Identity& self, const MeetingOptions& options, StoreClient store,
               StoreAccess access, std::string address);

  // Call once. Returns the result of meet().
  Outcome<Met> run();

  // True if run() failed because the store is gone, not because of its answers.
  bool lost_store() const { return !store_.connected(); }

 private:
  std::string told_record() const;
  Outcome<> check_job();
  Outcome<> claim_rank();
  Outcome<> enter();
  Outcome<> contradict(const std::string& theirs);
  Outcome<Met> gather();
  // Waits for the others' descriptions, or until the meeting is interrupted.
  Result<Nothing> wait_until(Deadline deadline);
  Outcome<Met> wait_for_everyone();
  // Checks as many ranks as time allows: those below `asked`.
  Outcome<std::vector<GlobalRank>> find_missing(int& asked);
  std::string missing_words(const std::vector<GlobalRank>& missing, int asked) const;
  void say_who_is_missing();
  Outcome<Met> give_up();
  Outcome<Met> read_everyone(const std::string& said);

  const Identity& self_;
  const MeetingOptions& options_;
  const RankRecord me_;
  const std::string secret_claim_;
  std::string prefix_;
  StoreClient everything_;  // No prefix.
  StoreClient root_;
  StoreClient store_;
  StoreAccess access_;
  int64_t generation_ = 0;
  std::optional<RankRecord> former_;  // The previous owner of this rank.
};

}  // namespace muster::worker
