// The failure that the worker library reported to its program last and that was not overcome since,
// for the launcher's verdict. Worker_lib writes it into the ring's notes, and the agent reads it
// when the worker has ended (RingReader::reported()). It is not the owner of the ring who may write
// it, but the process of the worker that has joined the job; if none has, the first that fails. A
// writer that is killed meanwhile leaves none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/ring/ring_layout.h"

namespace muster {

// The numbers are those of ErrorCode in the worker library.
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
  // Global ranks where it began, ascending (may include the writer): ranks that died, did not
  // arrive, called abort(), gave the wrong path, or differ from most. Empty: unknown.
  std::vector<int> origin = {};
  int rank = -1;             // The writer's own global rank; -1: unknown to it.
  std::string message = {};  // what() in one line.

  friend bool operator==(const FailureRecord&, const FailureRecord&) = default;
};

// The message is cut to 1,023 bytes, the origin to its first 128 ranks and the writer's. Allocates.
void put_report(ring::Report& report, const FailureRecord& record);
void take_back_report(ring::Report& report);

}  // namespace muster
