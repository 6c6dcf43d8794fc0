// Exchange of what a backend needs to connect the members of a group (addresses, NCCL's id) through
// the group's set-up store.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "worker_lib/backends/backend.h"

namespace muster::worker {

// Writes `value` (any bytes) under `topic` and this member's rank and returns the values of all
// members by group rank. A failure with code timeout names the missing ranks.
Outcome<std::vector<std::string>> exchange_through_store(GroupSetup& setup,
                                                         const std::string& topic,
                                                         const std::string& value);

// Exchanges one record per member in the same way. `what` describes a record in messages.
template <typename Record>
Outcome<std::vector<Record>> exchange_records(GroupSetup& setup, const std::string& topic,
                                              const Record& mine, const char* what) {
  const auto texts = exchange_through_store(setup, topic, mine.encode());
  if (!texts) return tl::unexpected(texts.error());
  std::vector<Record> records;
  for (const Peer& peer : setup.members.peers) {
    const bool is_there = records.size() < texts->size();
    std::optional<Record> record;
    if (is_there) record = Record::decode((*texts)[records.size()]);
    if (!record)
      return failed(ErrorCode::rendezvous,
                    fmt::format("{} wrote something other than {} to the store; give every job a "
                                "store, or a prefix, of its own",
                                describe(peer), what),
                    {peer.rank});
    records.push_back(std::move(*record));
  }
  return records;
}

// Waits for keys of the set-up store. Returns false if they are missing at the deadline.
Outcome<bool> wait_in_store(GroupSetup& setup, const std::vector<std::string>& keys);

}  // namespace muster::worker
