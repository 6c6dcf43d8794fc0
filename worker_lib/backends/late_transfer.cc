#include "worker_lib/backends/late_transfer.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "worker_lib/time_text.h"

namespace muster::worker {

Failure late_transfer(const Transfer& transfer, const Members& members, bool begun) {
  const std::string limit = within(transfer.limit);
  Failure failure{ErrorCode::timeout, {}, {}};
  failure.is_suspicion = true;
  if (transfer.peer < 0) {
    failure.message =
        fmt::format("no message with tag {} arrived from any rank {}", transfer.tag, limit);
    return failure;
  }
  const Peer& peer = members[transfer.peer];
  failure.message = describe(peer);
  failure.ranks = {peer.rank};
  if (transfer.kind == OpKind::send) {
    failure.message += fmt::format(
        " did not receive the message with tag {} {}; check that it receives it, and if both ends "
        "send first, let one receive first or use isend() or batch_isend_irecv()",
        transfer.tag, limit);
  } else {
    failure.message +=
        fmt::format(" did not send {} with tag {} {}",
                    begun ? "the rest of its message" : "a message", transfer.tag, limit);
  }
  return failure;
}

Failure absent_members(const Members& members, std::span<const int> missing,
                       const std::string& how) {
  Failure failure{ErrorCode::timeout, {}, {}};
  std::vector<Peer> peers;
  for (const int rank : missing) {
    failure.ranks.push_back(members[rank].rank);
    peers.push_back(members[rank]);
  }
  std::sort(failure.ranks.begin(), failure.ranks.end());
  failure.message =
      fmt::format("{} did not arrive {}; {}", peers.empty() ? "the last rank" : describe(peers),
                  how, look_at(missing.size()));
  return failure;
}

}  // namespace muster::worker
