// Renders the last screen of a job that did not succeed. Its first two lines are the answer; the
// rest is the evidence (the culprit's last lines of stderr, the logs' paths) and lines for the
// other ranks. Keeps strings of torchrun's summary that users grep for: "Root Cause (first observed
// failure)", "exitcode  : ", "failed (exitcode: ". Pure: the caller prints it in one piece.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "agent/report/job_report.h"

namespace muster {

struct RenderOptions {
  int width = 80;                      // The terminal's; rules are at most 80 wide.
  bool colour = false;                 // True for SGR colours.
  std::chrono::seconds utc_offset{0};  // Local time's, for the time shown.
  bool whole_block = false;            // True for torchrun's whole "Root Cause" block.
};

// Returns the block for any end of a job, with a last newline; empty for success.
std::string render_end(const JobReport& report, const RenderOptions& options);

// Returns the line printed when another attempt follows a failed one, without newline and leading
// "muster: ". `delay`: the back-off before the restart.
std::string render_restart(const WorkerFailure& culprit, const Cause& cause, int restarts_left,
                           int max_restarts, Duration delay = Duration{0});

}  // namespace muster
