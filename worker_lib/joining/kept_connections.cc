#include "worker_lib/joining/kept_connections.h"

#include <mutex>
#include <utility>
#include <vector>

namespace muster::worker {
namespace {

// Enough for programs that join from several threads, or at several servers.
constexpr size_t kKeptMax = 8;

struct Kept {
  std::mutex mutex;
  std::vector<std::pair<MeetAtAddress, StoreClient>> connections;
};

// Never destroyed: threads may join until the process ends.
Kept& kept() {
  static auto* const kept = new Kept;
  return *kept;
}

std::optional<StoreClient> next_connection(const MeetAtAddress& server) {
  const std::lock_guard lock(kept().mutex);
  auto& all = kept().connections;
  for (auto one = all.begin(); one != all.end(); ++one) {
    if (!(one->first == server)) continue;
    StoreClient found = std::move(one->second);
    all.erase(one);
    return found;
  }
  return std::nullopt;
}

}  // namespace

std::optional<StoreClient> take_connection(const MeetAtAddress& server) {
  for (;;) {
    std::optional<StoreClient> found = next_connection(server);
    if (!found || found->ping(0)) return found;
  }
}

void keep_connection(const MeetAtAddress& server, const StoreClient& connection) {
  if (!connection.connected()) return;
  const std::lock_guard lock(kept().mutex);
  auto& all = kept().connections;
  if (all.size() >= kKeptMax) all.erase(all.begin());
  all.emplace_back(server, connection);
}

}  // namespace muster::worker
