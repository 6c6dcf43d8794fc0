// Which receive gets which message: MPI's rule (MPI 4.0, 3.5). A message goes to the first posted
// receive that matches (its sender or any, and its tag); a receive gets the first message to have
// arrived that matches. Messages that arrive before their receive are kept here.
//
// Pure; no thread of its own.
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

// In front of every message, in host byte order.
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
  std::shared_ptr<HostWork> work;  // Null: a blocking caller waits for it.
  bool done = false;
  std::optional<Failure> failure;
  int source = -1;
  bool matched = false;  // For a receive: its message is arriving.

  // Of a receive from any: -1 until its message arrives.
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
  size_t got = 0;      // Bytes of data so far: it may still be arriving.
  RequestPtr claimed;  // The receive that it will be copied to.

  bool complete() const { return got == data.size(); }
};

class TransferMatching {
 public:
  // Adds a receive for which no message is there.
  void post(RequestPtr request) { posted_.push_back(std::move(request)); }
  // Removes and returns the receive for a message with this head; null: the message is early.
  RequestPtr take_posted(int from, int tag);
  void forget_posted() { posted_.clear(); }
  // Whether some receive waits for a message from this rank (or from any).
  bool awaits(int from) const;
  const std::list<RequestPtr>& posted() const { return posted_; }

  // The first message to arrive for such a receive that is not claimed; null: none.
  EarlyMessage* find_early(int from, int tag);
  EarlyMessage* add_early(int from, const MessageHead& head);
  void drop_early(const EarlyMessage* message);
  const std::list<EarlyMessage>& early() const { return early_; }

 private:
  std::list<RequestPtr> posted_;   // In the order of the calls.
  std::list<EarlyMessage> early_;  // In the order of arrival.
};

}  // namespace muster::worker
