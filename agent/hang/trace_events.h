// The lines of a trace in the JSON array form of the "Trace Event Format", which ui.perfetto.dev
// and chrome://tracing read: a process for each rank, and rows of its calls. Pure.
//
// Each event is one line with a comma at its end. The format lets the array's end be missing, so
// the trace of a killed job can be read.
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

// "rank 5 (node-b, GPU 1)", sorted by rank.
std::string trace_rank(int rank, std::string_view name);
// Rows are shown in the order of their numbers.
std::string trace_row(int rank, int row, std::string_view name);

struct TraceCall {
  int rank = 0;
  int row = 0;
  std::string group;  // Name.
  const RecordedCall* call = nullptr;
  TraceTime called = 0;
  // The end; nullopt: unknown.
  std::optional<TraceTime> over = {};
  bool is_complete = true;  // False: it was not when its rank ended.
  bool is_late = false;     // True if its end was noticed late.
};
std::string trace_call(const TraceCall& call);

// An event of one rank, or of all (-1).
std::string trace_instant(int rank, TraceTime time, std::string_view name);

}  // namespace muster::hang
