// Decides from the flags alone where the bytes of one stream of one worker go. Pure.
//
//   --redirects --tee   shown   console          log file            through
//   no                  yes     as it is         none                pipe, or pty on a terminal
//   no                  no      nothing          none                pipe (its tail is kept)
//   redirected          any     nothing          yes                 the worker writes its file
//   tee'd               yes     with prefix      yes                 pipe
//   tee'd               no      nothing          yes                 the worker writes its file
//
// A tee'd stream has no pty: its file has the same content with and without a terminal.
#pragma once

#include "agent/launch_spec.h"

namespace muster {

enum class ConsolePrefix { none, tee, log_prefix };

struct StreamPlan {
  bool to_console = false;
  bool to_file = false;
  bool terminal = false;  // True if the worker gets a pty.
  bool filtered = false;  // True to copy matching lines to the attempt's filtered_*.log.
  ConsolePrefix prefix = ConsolePrefix::none;

  bool direct() const { return to_file && !to_console; }
  friend bool operator==(const StreamPlan&, const StreamPlan&) = default;
};

struct StreamFacts {
  Streams stream = Streams::out;  // `out` or `err`.
  int local_rank = 0;
  int rank = 0;
  bool console_is_terminal = false;
};

// --log-dir /dev/null means no files, no tee, and no --local-ranks-filter.
StreamPlan plan_stream(const LogSpec& log, const StreamFacts& facts);

}  // namespace muster
