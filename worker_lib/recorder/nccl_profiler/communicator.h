// What the ring gets of one NCCL communicator: a group with its calls, counted here over all kinds
// where NCCL tells of the call itself (from interface version 5 on), and else where it tells of the
// task behind the launch; its messages, counted by peer, behind the launch, since only then NCCL
// names the peer. NCCL's own numbers count each function apart.
//
// Of a communicator whose calls are captured into a CUDA graph, which then repeats them without
// telling, the ring says that not all calls are known. Versions 3 and 4 do not say what is
// captured, but show repetitions, on ranks that need a proxy for them: of collectives with a number
// that does not go up, of both kinds with the handle of the time before.
//
// A communicator is used by one thread at a time, as NCCL demands it of programs.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "rendezvous/ring/ring_writer.h"
#include "worker_lib/recorder/nccl_profiler/chained_profiler.h"
#include "worker_lib/recorder/nccl_profiler/profiler_api.h"

namespace muster::nccl {

// An event of any version, as far as it is recorded. Points into NCCL's descriptor.
struct EventFacts {
  uint64_t type = 0;
  int rank = -1;
  const char* function = nullptr;
  const char* datatype = nullptr;
  uint64_t count = 0;
  int root = -1;  // Or the peer.
  uint64_t sequence = 0;
  int channels = 0;
  bool is_captured = false;
  bool is_repeated = false;  // A graph makes the call once more; before version 5.
  void* parent_group = nullptr;
  // Version 3 only:
  const char* communicator = nullptr;
  uint64_t hash = 0;
};

class Communicator {
 public:
  // `writer`: nullptr: nothing is recorded.
  explicit Communicator(ring::RingWriter* writer) : writer_(writer) {}
  Communicator(const Communicator&) = delete;

  bool is_open() const { return is_open_; }
  // Without memory it stays closed.
  void open(std::string_view name, uint64_t hash, int size, int rank) noexcept;
  void close();

  ring::Pending collective_called(const EventFacts& event, bool has_launched);
  ring::Pending message_called(const EventFacts& event);
  ring::Pending last_call() const;
  void note_captured();

  // Of the chained profiler.
  void* their_context = nullptr;
  bool is_theirs = false;

 private:
  bool repeats(ring::CallKind kind, uint64_t sequence);

  ring::RingWriter* const writer_;
  bool is_open_ = false;
  int32_t group_ = -1;
  std::atomic<uint64_t> ordinal_ = 0;
  std::atomic<bool> is_captured_ = false;
  std::array<uint64_t, ring::kCallRows.size()> sequences_{};
};

}  // namespace muster::nccl
