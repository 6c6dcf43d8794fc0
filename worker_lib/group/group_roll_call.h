// A meeting of a group's ranks at the store: each enters, the last one releases all, and a waiting
// rank can list those that are missing. Three short messages per rank. Owned by the caller that
// holds the meeting; one thread.
#pragma once

#include <functional>
#include <map>
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
  // `store` has a prefix for this meeting alone.
  RollCall(StoreClient store, const Members& members)
      : store_(std::move(store)), members_(members) {}

  // Returns true if all others entered before. `wish`: a text for them, without a comma.
  Outcome<bool> enter(std::string_view wish = {});
  // Returns the wishes by group rank; empty for members that have not entered.
  Outcome<std::vector<std::string>> wishes();
  // Returns the ranks that have not entered, ascending.
  Outcome<std::vector<GlobalRank>> missing();
  // Sets the verdict unless another rank has set it; returns the one that holds.
  Outcome<std::string> decide(const std::string& verdict);
  // Returns the verdict; nullopt: none by `until`.
  Outcome<std::optional<std::string>> wait_verdict(
      Deadline until, const std::function<std::optional<Failure>()>& interrupted);
  // Deletes the keys. REQUIRES: no rank can enter any more.
  void forget();

 private:
  // Returns those that have entered, with their wishes.
  Outcome<std::map<GlobalRank, std::string>> entered();

  StoreClient store_;
  const Members& members_;
};

// "rank 2 (node7, pid 4711) and rank 3 (node7, pid 4712) did not arrive".
std::string did_not_come(const Members& members, const std::vector<GlobalRank>& ranks);

}  // namespace muster::worker
