// What ranks that are in destroy_process_group() still have under way, so that those who wait there
// for each other see when a message can no longer come: a rank that leaves begins nothing any more,
// so a receive that it has no send for, and a send that it has no receive for, will never be
// complete.
//
// Such a rank says of all its groups which sends and receives it waits for, and says so again when
// that has changed (kPendingId); a rank that has left has none. Owned by a group; any thread may
// call anything.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker_lib/operation.h"

namespace muster::worker {

// The watch passes on what a leaving rank waits for as if it were a group given up with this id.
inline constexpr const char* kPendingId = "leaving";

// What a message that is on its way may take: it is in the kernel or in shared memory when the news
// come, and half a second is ample to take it out.
inline constexpr std::chrono::milliseconds kLastMessage{500};

// A send or receive under way, of any thread.
struct PendingTransfer {
  static constexpr int kAnyTag = -1;  // Nobody knows which.

  OpKind kind = OpKind::send;
  int peer = 0;  // Group rank; -1: a receive from any.
  int tag = 0;
  friend bool operator==(const PendingTransfer&, const PendingTransfer&) = default;
};

struct PendingOfGroup {
  std::string group_id;
  std::vector<PendingTransfer> transfers;
};

// What a leaving rank says. `number`: of its texts the one with the highest counts. Longer than
// `bytes_max`: then it says only that it does not say.
std::string encode_pending(uint64_t number, const std::vector<PendingOfGroup>& groups,
                           size_t bytes_max);

struct PendingText {
  uint64_t number = 0;
  std::vector<PendingTransfer> transfers;
};
// Of this group; nothing: it does not say, or the text is another.
std::optional<PendingText> decode_pending(std::string_view text, std::string_view group_id);

class PendingAtShutdown {
 public:
  // `size`: of the group; `me`: which member this is.
  PendingAtShutdown(int size, int me) : size_(size), me_(me) {}

  void heard(int member, const PendingText& text);
  void left(int member);

  // Whether the other end may still do its part. Where it has none to do, no message may be on its
  // way any more either.
  bool can_complete(const PendingTransfer& mine) const;
  // Whether the member has said that it leaves. One load where nobody has.
  bool is_leaving(int member) const { return any_.load() && is_leaving_slow(member); }
  // Whether a member that is leaving still sends something, to anybody.
  bool sends(int member) const;

 private:
  struct Member {
    uint64_t number = 0;
    std::chrono::steady_clock::time_point since;  // When it may last have sent this rank something.
    std::vector<PendingTransfer> transfers;
  };
  bool can_complete_with(int member, const PendingTransfer& mine) const;
  bool is_leaving_slow(int member) const;

  const int size_;
  const int me_;
  std::atomic<bool> any_{false};
  mutable std::mutex mutex_;
  std::map<int, Member> members_;
};

}  // namespace muster::worker
