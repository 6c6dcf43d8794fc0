// Matching of messages and receives, by MPI's rule (MPI 4.0, 3.5). A message goes to the first
// posted receive that matches (its sender or any, and its tag); a receive gets the first matching
// message to have arrived. Messages that arrive before their receive are kept here. Every look-up
// takes logarithmic time in what is kept, since programs have 100,000 messages under way. Pure.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
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

struct TransferRequest;
using RequestPtr = std::shared_ptr<TransferRequest>;
using RequestsByDeadline = std::multimap<Deadline, RequestPtr>;

// A send or receive in progress.
struct TransferRequest {
  Transfer transfer;
  RequestsByDeadline::iterator place;  // In the engine, until done.
  std::shared_ptr<HostWork> work;      // Null if a blocking caller waits for the request,
  std::condition_variable changed;     // here: it is done, or the caller has to drive.
  uint64_t number = 0;                 // In the order of TransferMatching::post().
  bool done = false;
  std::optional<Failure> failure;
  int source = -1;
  bool matched = false;  // True if this is a receive whose message is arriving.

  size_t bytes() const { return transfer.count * size_of(transfer.dtype); }
  bool is_send() const { return transfer.kind == OpKind::send; }
};

// A message that arrived before its receive.
struct EarlyMessage {
  int from = -1;
  uint64_t number = 0;  // In the order of arrival.
  MessageHead head;
  std::vector<std::byte> data;
  size_t got = 0;      // Bytes of data that have arrived.
  RequestPtr claimed;  // The receive that it will be copied to; null: none yet.

  bool complete() const { return got == data.size(); }
};
using EarlyPtr = std::shared_ptr<EarlyMessage>;

class TransferMatching {
 public:
  // Adds a receive whose message has not arrived.
  void post(RequestPtr request);
  // Removes and returns the receive for such a message; null: the message is early.
  RequestPtr take_posted(int from, int tag);
  void forget_posted() { posted_.clear(); }
  // True if a receive names this rank (-1: any) as its sender.
  bool is_posted(int from) const;
  // True if some receive waits for a message from this rank (or from any).
  bool awaits(int from) const { return is_posted(from) || is_posted(-1); }

  // Removes and returns the first message to have arrived for such a receive; null: none.
  EarlyPtr take_early(int from, int tag);
  EarlyPtr add_early(int from, const MessageHead& head);
  const auto& early() const { return early_; }

 private:
  // Equal keys keep their order.
  std::multimap<std::pair<int, int>, RequestPtr> posted_;  // By sender (-1: any) and tag.
  std::multimap<std::pair<int, int>, EarlyPtr> early_;     // By tag and sender.
  uint64_t numbers_ = 0;
};

}  // namespace muster::worker
