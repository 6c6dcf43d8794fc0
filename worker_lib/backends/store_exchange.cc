#include "worker_lib/backends/store_exchange.h"

#include <algorithm>
#include <chrono>

#include "worker_lib/backends/late_transfer.h"
#include "worker_lib/fields.h"
#include "worker_lib/time_text.h"

namespace muster::worker {
namespace {

// Longest wait in the store between two checks whether to give up.
constexpr std::chrono::milliseconds kStoreSlice{100};

std::string address_key(const std::string& topic, int rank) {
  return fmt::format("{}/{}", topic, rank);
}

tl::unexpected<Failure> address_store_failure(const Error& error) {
  return failed(ErrorCode::rendezvous,
                fmt::format("the store failed while the group was made: {}", error.message));
}

// Returns a timeout that names the ranks that have not written yet.
Failure absent_failure(GroupSetup& setup, const std::string& topic) {
  std::vector<int> missing;
  for (int rank = 0; rank < setup.members.size(); ++rank) {
    const Result<bool> there = setup.store.check({address_key(topic, rank)});
    if (!there) return address_store_failure(there.error()).value();
    if (!*there) missing.push_back(rank);
  }
  return absent_members(setup.members, missing,
                        "to set up the group's connections " + within(setup.limit));
}

Outcome<> wait_for_all(GroupSetup& setup, const std::string& topic,
                       const std::vector<std::string>& keys) {
  const Outcome<bool> there = wait_in_store(setup, keys);
  if (!there) return tl::unexpected(there.error());
  if (!*there) return tl::unexpected(absent_failure(setup, topic));
  return Done{};
}

}  // namespace

Outcome<bool> wait_in_store(GroupSetup& setup, const std::vector<std::string>& keys) {
  while (true) {
    if (setup.interrupted) {
      if (const std::optional<Failure> why = setup.interrupted()) return tl::unexpected(*why);
    }
    const Deadline now = std::chrono::steady_clock::now();
    const bool is_last_look = setup.deadline <= now;
    const std::chrono::nanoseconds slice =
        is_last_look ? std::chrono::milliseconds{1}
                     : std::min<std::chrono::nanoseconds>(setup.deadline - now, kStoreSlice);
    const Result<Nothing> waited = setup.store.wait(keys, slice);
    if (waited) return true;
    if (!setup.store.connected()) return address_store_failure(waited.error());
    if (is_last_look) return false;
  }
}

// The first member gathers all values into one key: n members cost the store n replies, not n * n.
Outcome<std::vector<std::string>> exchange_through_store(GroupSetup& setup,
                                                         const std::string& topic,
                                                         const std::string& value) {
  if (const auto set = setup.store.set(address_key(topic, setup.members.me), value); !set)
    return address_store_failure(set.error());
  const std::string all_key = topic + "/all";
  if (setup.members.me == 0) {
    std::vector<std::string> keys;
    for (int rank = 0; rank < setup.members.size(); ++rank)
      keys.push_back(address_key(topic, rank));
    if (const Outcome<> waited = wait_for_all(setup, topic, keys); !waited)
      return tl::unexpected(waited.error());
    Result<std::vector<std::string>> values = setup.store.multi_get(keys);
    if (!values) return address_store_failure(values.error());
    if (const auto set = setup.store.set(all_key, encode_fields(*values)); !set)
      return address_store_failure(set.error());
    return std::move(*values);
  }
  if (const Outcome<> waited = wait_for_all(setup, topic, {all_key}); !waited)
    return tl::unexpected(waited.error());
  const Result<std::string> all = setup.store.get(all_key);
  if (!all) return address_store_failure(all.error());
  std::optional<std::vector<std::string>> values = decode_fields(*all);
  if (!values)
    return failed(ErrorCode::rendezvous,
                  fmt::format("rank 0 of group {} wrote something other than the {} of all ranks "
                              "to the store; give every job a store, or a prefix, of its own",
                              setup.name, topic));
  return std::move(*values);
}

}  // namespace muster::worker
