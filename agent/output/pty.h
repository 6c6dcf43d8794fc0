// A pseudo-terminal for one worker stream that is shown on a terminal, so that the worker keeps its
// colours and progress bars. It is raw (no output processing, echo or signals): bytes reach the
// user's terminal as they were written. It never becomes a process's controlling terminal.
#pragma once

#include "rendezvous/base/error.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {

// The two ends of a worker's stream; master and slave for a terminal.
struct StreamEnds {
  UniqueFd ours;
  UniqueFd theirs;
};

// Copies the window size of the terminal `like_fd`. Fails with ExitCode::environment.
Result<StreamEnds> open_pty(int like_fd);

// No-op if `from_fd` is not a terminal.
void copy_window_size(int from_fd, int to_fd);

}  // namespace muster
