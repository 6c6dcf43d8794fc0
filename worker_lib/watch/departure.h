// A leaving rank's announcement about its groups, in destroy_process_group(): how many collectives
// it performed, and the messages that it still waits for. Plain values.
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "worker_lib/operation.h"

namespace muster::worker {

// Host and GPU memory have a queue each, which number their operations separately.
inline constexpr size_t kCollectiveQueues = 2;
using OperationCounts = std::array<uint64_t, kCollectiveQueues>;

struct ShutdownNotice {
  std::string group_id;
  OperationCounts performed{};
  friend bool operator==(const ShutdownNotice&, const ShutdownNotice&) = default;
};

// Time for a message that is already on its way: it is in the kernel or in shared memory when the
// update arrives, and half a second is ample to receive it.
inline constexpr std::chrono::milliseconds kLastMessage{500};

// A send or receive in flight, of any thread.
struct PendingTransfer {
  static constexpr int kAnyTag = -1;  // The tag is unknown.

  OpKind kind = OpKind::send;
  int peer = 0;  // Group rank; -1: a receive from any.
  int tag = 0;
  friend auto operator<=>(const PendingTransfer&, const PendingTransfer&) = default;
};

struct PendingOfGroup {
  std::string group_id;
  std::vector<PendingTransfer> transfers;
  friend bool operator==(const PendingOfGroup&, const PendingOfGroup&) = default;
};

}  // namespace muster::worker
