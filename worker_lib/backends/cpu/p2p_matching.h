// Which receive gets which message: MPI's rule (MPI 4.0, 3.5). Of the receives that a message fits
// (its sender or any, and its tag) the first that was asked for gets it; of the messages that a
// receive fits the first that came. Messages that came before their receive are kept here.
//
// Pure; no thread of its own.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "worker_lib/failure.h"
#include "worker_lib/operation.h"
#include "worker_lib/work_state.h"

namespace muster::worker {

// In front of every message, in the order of the machine.
struct MessageHead {
  static constexpr uint32_t kMagic = 0x504c554d;  // "MULP"
  uint32_t magic = kMagic;
  int32_t tag = 0;
  uint8_t dtype = 0;
  uint8_t unused[7] = {};
  uint64_t bytes = 0;
};
static_assert(sizeof(MessageHead) == 24);

// A send or receive under way.
struct TransferRequest {
  Transfer transfer;
  Deadline deadline;
  std::shared_ptr<HostWork> work;  // None: somebody waits for it on the stack.
  bool done = false;
  std::optional<Failure> failure;
  int source = -1;
  bool matched = false;  // A receive: its message is coming.

  size_t bytes() const { return transfer.count * size_of(transfer.dtype); }
  bool is_send() const { return transfer.kind == OpKind::send; }
};
using RequestPtr = std::shared_ptr<TransferRequest>;

// A message that nobody had asked for when it came.
struct EarlyMessage {
  int from = -1;
  MessageHead head;
  std::vector<std::byte> data;
  size_t got = 0;      // Of data: it may still be coming.
  RequestPtr claimed;  // By the receive that it will be copied to.

  bool complete() const { return got == data.size(); }
};

class TransferMatching {
 public:
  // A receive that no message is there for.
  void post(RequestPtr request) { posted_.push_back(std::move(request)); }
  // The receive for a message with this head, which is taken out; none: it is early.
  RequestPtr take_posted(int from, int tag);
  void forget_posted() { posted_.clear(); }
  // Whether some receive waits for a message from this rank (or from anybody).
  bool awaits(int from) const;
  const std::list<RequestPtr>& posted() const { return posted_; }

  // The message that came first for such a receive and is not claimed; null: none.
  EarlyMessage* find_early(int from, int tag);
  EarlyMessage* add_early(int from, const MessageHead& head);
  void drop_early(const EarlyMessage* message);
  const std::list<EarlyMessage>& early() const { return early_; }

 private:
  std::list<RequestPtr> posted_;   // In the order of the calls.
  std::list<EarlyMessage> early_;  // In the order in which they came.
};

}  // namespace muster::worker
