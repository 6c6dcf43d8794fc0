// The lines of a trace in the Trace Event Format ("Trace Event Format", the JSON array form), which
// ui.perfetto.dev and chrome://tracing read: a process for each rank, and rows of its calls. Pure.
//
// Each event is one line with a comma behind it. The array's end may be missing, by that document,
// so that the trace of a job that was killed can be read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/hang/ring_reader.h"

namespace muster::hang {

// Nanoseconds since 1970.
using TraceTime = int64_t;

std::string trace_begin();
std::string trace_end();

// "rank 5 (node-b, GPU 1)", in the order of the ranks.
std::string trace_rank(int rank, std::string_view name);
// Rows are shown in the order of their numbers.
std::string trace_row(int rank, int row, std::string_view name);

struct TraceCall {
  int rank = 0;
  int row = 0;
  std::string group;  // Name.
  const RecordedCall* call = nullptr;
  TraceTime called = 0;
  // Until when; nullopt: nobody knows.
  std::optional<TraceTime> over = {};
  bool is_complete = true;  // Else it was not when its rank ended.
  bool is_late = false;     // Its end was noticed some time after it.
};
std::string trace_call(const TraceCall& call);

// What happened to one rank, or to all: -1.
std::string trace_instant(int rank, TraceTime time, std::string_view name);

}  // namespace muster::hang
