// How a program began to end, noted in the ring by Python's hook before the program closes its
// connections. Other ranks may fail of that long before the program itself ends: it flushes its
// logger, or waits for a thread. The agent reads the note while the worker still runs. Written only
// by a process that was started as a worker, or is the first Python program below one. Until then
// the note tells of the first thread that an exception ended.
#pragma once

#include <cstdint>
#include <string>

#include <sys/types.h>

#include "rendezvous/ring/ring_layout.h"

namespace muster {

enum class DepartureKind : uint8_t {
  none = 0,
  left,      // It destroyed its process groups, and no exception was on the way.
  raised,    // An exception was on the way as it did; the program may still catch it.
  uncaught,  // No code of the program caught the exception.
  // An exception ended a thread that is not the main one; the program goes on, perhaps without what
  // that thread was to do.
  thread_ended,
};

struct Departure {
  int64_t time_ns = 0;  // CLOCK_MONOTONIC
  DepartureKind kind = DepartureKind::none;
  pid_t pid = 0;        // The writer's, in its own PID namespace.
  std::string error{};  // "ValueError: loss is NaN", at most 223 bytes.
  std::string site{};   // "train.py:88 step", at most 63 bytes; empty: unknown.
  // Threads that keep an interpreter from ending: "Thread-1 (upload)"; or the one that has ended.
  std::string threads{};

  friend bool operator==(const Departure&, const Departure&) = default;
};

void put_departure(ring::DepartureNote& note, const Departure& departure);
void take_back_departure(ring::DepartureNote& note);

}  // namespace muster
