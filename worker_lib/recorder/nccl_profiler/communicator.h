// Records one NCCL communicator as a group of the ring. Collectives of all kinds share a count kept
// here, since NCCL numbers each function separately. They are recorded at the call from interface
// version 5 on, before that at the task after the launch. Messages, counted per peer, are always
// recorded at the task, the first event that names the peer.
//
// A CUDA graph repeats captured calls without events, so the ring then says that not all calls of
// the group are known. Versions 3 and 4 do not report captures, only repetitions on ranks with a
// proxy: a collective's sequence number does not increase, a task has its previous run's handle.
//
// Used by one thread at a time, as NCCL demands of programs.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "rendezvous/ring/ring_writer.h"
#include "worker_lib/recorder/nccl_profiler/chained_profiler.h"
#include "worker_lib/recorder/nccl_profiler/profiler_api.h"

namespace muster::nccl {

// The recorded parts of an event of any version. Points into NCCL's descriptor.
struct EventFacts {
  uint64_t type = 0;
  int rank = -1;
  const char* function = nullptr;
  const char* datatype = nullptr;
  uint64_t count = 0;
  int root = -1;  // Root or peer.
  uint64_t sequence = 0;
  int channels = 0;
  bool is_captured = false;
  bool is_repeated = false;  // A graph repeats the call; only before version 5.
  void* parent_group = nullptr;
  // Only in version 3:
  const char* communicator = nullptr;
  uint64_t hash = 0;
};

class Communicator {
 public:
  // Records nothing if `writer` is null.
  explicit Communicator(ring::RingWriter* writer) : writer_(writer) {}
  Communicator(const Communicator&) = delete;

  bool is_open() const { return is_open_; }
  // Stays closed if there is no memory.
  void open(std::string_view name, uint64_t hash, int size, int rank) noexcept;
  void close();

  ring::Pending collective_called(const EventFacts& event, bool has_launched);
  ring::Pending message_called(const EventFacts& event);
  ring::Pending last_call() const;
  void note_captured();

  // State of the chained profiler.
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
