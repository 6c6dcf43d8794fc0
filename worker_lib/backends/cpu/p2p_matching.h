// Matching of messages and receives, by MPI's rule (MPI 4.0, 3.5). A message goes to the first
// posted receive that matches (its sender or any, and its tag); a receive gets the first matching
// message to have arrived. Messages that arrive before their receive are kept here. Pure.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "worker_lib/failure.h"
#include "worker_lib/operation.h"
#include "worker_lib/work_state.h"

namespace muster::worker {

// Precedes every message, in host byte order.
struct MessageHead {
  static constexpr uint32_t kMagic = 0x504c554d;  // "MULP"
  uint32_t magic = kMagic;
  int32_t tag = 0;
  DType dtype = DType::int8;
  uint8_t unused[7] = {};
  uint64_t bytes = 0;
};
static_assert(sizeof(MessageHead) == 24);

// A send or receive in progress.
struct TransferRequest {
  Transfer transfer;
  Deadline deadline;
  std::shared_ptr<HostWork> work;  // Null if a blocking caller waits for the request.
  bool done = false;
  std::optional<Failure> failure;
  int source = -1;
  bool matched = false;  // True if this is a receive whose message is arriving.

  // The other end; -1 for a receive from any source until its message arrives.
  int peer() const { return matched ? source : transfer.peer; }
  size_t bytes() const { return transfer.count * size_of(transfer.dtype); }
  bool is_send() const { return transfer.kind == OpKind::send; }
};
using RequestPtr = std::shared_ptr<TransferRequest>;

// A message that arrived before its receive.
struct EarlyMessage {
  int from = -1;
  MessageHead head;
  std::vector<std::byte> data;
  size_t got = 0;      // Bytes of data that have arrived.
  RequestPtr claimed;  // The receive that it will be copied to; null: none yet.

  bool complete() const { return got == data.size(); }
};

class TransferMatching {
 public:
  // Adds a receive whose message has not arrived.
  void post(RequestPtr request) { posted_.push_back(std::move(request)); }
  // Removes and returns the receive for such a message; null: the message is early.
  RequestPtr take_posted(int from, int tag);
  void forget_posted() { posted_.clear(); }
  // True if some receive waits for a message from this rank (or from any).
  bool awaits(int from) const;
  const std::list<RequestPtr>& posted() const { return posted_; }

  // The first unclaimed message to have arrived for such a receive; null: none.
  EarlyMessage* find_early(int from, int tag);
  EarlyMessage* add_early(int from, const MessageHead& head);
  void drop_early(const EarlyMessage* message);
  const std::list<EarlyMessage>& early() const { return early_; }

 private:
  std::list<RequestPtr> posted_;   // In call order.
  std::list<EarlyMessage> early_;  // In arrival order.
};

}  // namespace muster::worker
