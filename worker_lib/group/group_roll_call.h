// Ranks of a group that meet at the store: each enters, the last one lets all go, and
// who waits can say who has not come. Three short messages a rank.
//
// Owned by whoever meets; one thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/store/store_client.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"

namespace muster::worker {

class RollCall {
 public:
  // `store`: its keys are for this meeting alone.
  RollCall(StoreClient store, const Members& members)
      : store_(std::move(store)), members_(members) {}

  // True: all others have entered before. `wish` is for the others; without a comma. Fails with
  // rendezvous when the store does.
  Outcome<bool> enter(std::string_view wish = {});
  // What each has entered with; empty for those that have not. By place among the members.
  Outcome<std::vector<std::string>> wishes();
  // Ranks that have not entered, ascending.
  Outcome<std::vector<GlobalRank>> missing();
  // Sets what the meeting has come to, unless somebody has before; returns what holds.
  Outcome<std::string> decide(const std::string& verdict);
  // The verdict; nothing: there is none by then.
  Outcome<std::optional<std::string>> wait_verdict(
      Deadline until, const std::function<std::optional<Failure>()>& interrupted);
  // Takes the keys away. Nobody may come any more.
  void forget();

 private:
  StoreClient store_;
  const Members& members_;
};

// "rank 2 (node7, pid 4711) and rank 3 (node7, pid 4712) did not come".
std::string did_not_come(const Members& members, const std::vector<GlobalRank>& ranks);

Failure store_failure(const Error& error);

}  // namespace muster::worker
