// The last screen of a job that did not succeed: one block of text. Its first two lines are the
// answer; the rest is the evidence (the culprit's last lines of stderr, where the logs are) and
// lines for the other ranks. Some strings of torchrun's summary are kept for users who grep for
// them: "Root Cause (first observed failure)", "exitcode  : ", "failed (exitcode: ". Pure: the
// caller prints the text on stderr in one piece.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "agent/report/job_report.h"

namespace muster {

struct RenderOptions {
  int width = 80;                      // Of the terminal; rules are at most 80 wide.
  bool colour = false;                 // SGR colours for the headline.
  std::chrono::seconds utc_offset{0};  // Of local time, for the time shown.
};

// The block for any end of a job; ends in a newline; empty for success.
std::string render_end(const JobReport& report, const RenderOptions& options);

// The line printed when another attempt follows a failed one. Unlike render_end, no newline and no
// leading "muster: ". `delay` is the back-off before the restart.
std::string render_restart(const WorkerFailure& culprit, const Cause& cause, int restarts_left,
                           int max_restarts, Duration delay = Duration{0});

}  // namespace muster
