// The last failure that the worker library reported to its program and that was not overcome since,
// for the launcher's verdict. Worker_lib writes it into the ring's notes, and the agent reads it
// when the worker has ended (RingReader::reported()). Its writer need not own the ring: it is the
// worker's process that has joined the job, or, if none has, the first process that fails. A writer
// that is killed while it writes leaves none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/ring/ring_layout.h"

namespace muster {

// The values are those of ErrorCode in the worker library.
enum class FailureCode : uint8_t {
  unknown = 0,
  rendezvous = 6,
  timeout = 7,
  peer_failed = 8,
  aborted = 9,
  stopped = 10,
  mismatch = 11,
  backend = 12,
  system = 13,
};

struct FailureRecord {
  int64_t time_ns = 0;  // CLOCK_MONOTONIC when this process first learned of it.
  FailureCode code = FailureCode::unknown;
  // Ascending global ranks where it began, perhaps the writer's too: ranks that died, did not
  // arrive, called abort(), gave the wrong path, or differ from most. Empty: unknown.
  std::vector<int> origin = {};
  int rank = -1;             // The writer's global rank; -1: unknown.
  std::string message = {};  // what() in one line.

  friend bool operator==(const FailureRecord&, const FailureRecord&) = default;
};

// Cuts the message to 1,023 bytes and `origin` to 128 ranks, keeping the writer's. Allocates.
void put_report(ring::Report& report, const FailureRecord& record);
void take_back_report(ring::Report& report);

}  // namespace muster
