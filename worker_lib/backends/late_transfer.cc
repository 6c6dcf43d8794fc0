#include "worker_lib/backends/late_transfer.h"

#include <fmt/format.h>

#include "worker_lib/time_text.h"

namespace muster::worker {

Failure late_transfer(const Transfer& transfer, const Members& members, bool begun) {
  const std::string limit = within(transfer.limit);
  if (transfer.peer < 0) {
    return {ErrorCode::timeout,
            fmt::format("no message with tag {} came from anybody {}", transfer.tag, limit),
            {}};
  }
  const Peer& peer = members[transfer.peer];
  Failure failure{ErrorCode::timeout, describe(peer), {peer.rank}};
  if (transfer.kind == OpKind::send) {
    failure.message += fmt::format(
        " did not take the message with tag {} {}; see that it receives it, and where both ends "
        "send first, let one receive first or use isend() or batch_isend_irecv()",
        transfer.tag, limit);
  } else {
    failure.message +=
        fmt::format(" did not send {} with tag {} {}",
                    begun ? "the rest of its message" : "a message", transfer.tag, limit);
  }
  return failure;
}

}  // namespace muster::worker
