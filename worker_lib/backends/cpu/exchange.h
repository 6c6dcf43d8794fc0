// The messages of one collective on one rank, progressed together on the caller's thread: sends and
// receives, ordered per pair of ranks, with dependencies. Rings, trees etc. are lists of these.
//
//   exchange.begin(operation, deadline);
//   auto got = exchange.receive(left, block, bytes);
//   exchange.send(right, block, bytes, got);      // leaves once `got` has arrived
//   Outcome<> done = exchange.finish();
//
// Every message carries a frame that identifies its call. The receiver compares it with its own
// call, so a mismatch is detected before data is used. Messages of a dependent chain should be no
// larger than kChunk, so that forwarding starts early and reductions find their data in the cache.
//
// Owned by a rank's backend; one thread at a time. Any thread may end finish() by the abort switch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker_lib/backends/cpu/awaited_peers.h"
#include "worker_lib/backends/cpu/links.h"
#include "worker_lib/backends/cpu/side_copies.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"

namespace muster::worker {

inline constexpr size_t kChunk = 128 * 1024;

// Precedes every message, in host byte order.
struct Frame {
  static constexpr uint32_t kMagic = 0x464c554d;  // "MULF"
  uint32_t magic = kMagic;
  OpKind kind = OpKind::barrier;
  DType dtype = DType::int8;
  ReduceOp reduce = ReduceOp::sum;
  uint8_t is_v : 1 = 0;
  uint8_t had_counts : 1 = 0;  // For error messages; not compared.
  uint8_t purpose : 4 = 0;
  uint8_t unused : 2 = 0;
  int32_t root = 0;
  uint32_t part = 0;  // Ordinal of the message in this call, for this pair of ranks.
  uint64_t sequence = 0;
  uint64_t count = 0;
  uint64_t bytes = 0;  // Payload after the frame.

  friend bool operator==(const Frame&, const Frame&) = default;
};
static_assert(sizeof(Frame) == 40);

// Returns the fields common to all messages of a call; `part` and `bytes` differ.
Frame frame_of(const Operation& operation);
// "all_reduce 17 (sum of 100 float32)", "should_stop() 17".
std::string describe(const Frame& frame);

struct Reduction {
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;  // Never average: see `divisor`.
  double divisor = 1;           // Applied to the final result.

  size_t element() const { return size_of(dtype); }
};

// Computes out = a op b, element by element. `out` may be `a` or `b`.
void combine(const Reduction& reduction, std::byte* out, const std::byte* a, const std::byte* b,
             size_t count);

// Identifies a message that was added.
struct Ticket {
  int stream = -1;  // 2 * peer + is_send; -1: none.
  uint32_t index = 0;
};

struct Combination {
  std::byte* out = nullptr;
  const std::byte* mine = nullptr;  // May be `out`.
  size_t count = 0;
  bool mine_first = true;  // out = mine op received; else received op mine.
  bool is_last = false;    // Divide by the divisor afterwards.
};

class Exchange {
 public:
  // All arguments outlive it. `awaited` may be null.
  Exchange(ByteLinks& links, const Members& members, const AbortSwitch& abort,
           AwaitedPeers* awaited);

  // Starts a new call. REQUIRES: the previous call has finished.
  void begin(const Operation& operation, Deadline deadline);

  // Adds a message; nothing moves before finish(). `after`: a message of this exchange that must
  // complete first (a receive before a send, or a send before a receive).
  Ticket send(int peer, const void* data, size_t bytes, Ticket after = {});
  Ticket receive(int peer, void* to, size_t bytes, Ticket after = {});

  // Receives and combines elements. REQUIRES: at most kChunk bytes if other messages depend on it.
  Ticket receive_combined(int peer, const Reduction& reduction, const Combination& combination,
                          Ticket after = {});

  // Adds a copy within this rank, which finish() makes while no message can move. No message may
  // depend on it. A thread helps with large copies if the links have patience: then every rank has
  // a core. No-op if `to` is `from` or `bytes` is 0.
  void copy(void* to, const void* from, size_t bytes) { copies_.add(to, from, bytes); }

  // Moves all messages. Afterwards more messages of the same call may be added and finished.
  Outcome<> finish();

 private:
  struct Piece {
    const std::byte* from = nullptr;  // For a send.
    std::byte* to = nullptr;          // For a receive; null: the stream's scratch.
    size_t bytes = 0;
    Ticket after;
    int combination = -1;  // Index into combinations_.
  };
  struct Stream {
    int peer = -1;
    bool is_send = false;
    std::vector<Piece> pieces;
    uint32_t next = 0;       // Index of the piece in progress.
    size_t moved = 0;        // Bytes moved of its frame and data together.
    bool announced = false;  // True if this is a send and `frame` describes the piece in progress.
    Frame frame;
    std::vector<std::byte> scratch;

    bool done() const { return next == pieces.size(); }
  };
  struct Combining {
    Reduction reduction;
    Combination what;
  };

  Ticket add(int peer, bool is_send, const Piece& piece);
  bool may_go(const Piece& piece) const;
  Outcome<> move_all();
  Outcome<bool> pass();
  Outcome<bool> push(Stream& stream);
  Outcome<bool> pull(Stream& stream);
  void complete(Stream& stream, const Piece& piece);
  bool all_done() const;
  void wait_for_links();
  Failure timeout_failure() const;
  Outcome<> check_frame(const Stream& stream, const Piece& piece) const;
  Outcome<> check_unasked() const;
  Failure mismatch_of(const Peer& peer, const Frame& frame) const;
  Failure differing(const Peer& peer, std::string message) const;

  ByteLinks& links_;
  const Members& members_;
  const AbortSwitch& abort_;
  AwaitedPeers* awaited_;
  Frame label_;
  std::chrono::milliseconds limit_{0};
  Deadline deadline_;
  std::vector<std::unique_ptr<Stream>> streams_;  // By 2 * peer + is_send; null: none yet.
  std::vector<Stream*> active_;                   // Streams with pieces, in order of addition.
  std::vector<Combining> combinations_;
  SideCopies copies_;
  std::vector<int> reading_, writing_;
};

}  // namespace muster::worker
