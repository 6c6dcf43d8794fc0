// A pseudo-terminal for one worker stream that is shown on a terminal, so that the worker keeps its
// colours and progress bars. Raw: no output processing, no echo, no signals, so that bytes reach
// the user's terminal as they were written. It never becomes a process's controlling terminal.
#pragma once

#include "rendezvous/base/error.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {

// The two ends of a worker's stream: of a terminal, the master and the slave.
struct StreamEnds {
  UniqueFd ours;
  UniqueFd theirs;
};

// Has the window size of the terminal `like_fd`. Fails with ExitCode::environment.
Result<StreamEnds> open_pty(int like_fd);

// Does nothing if `from_fd` is not a terminal.
void copy_window_size(int from_fd, int to_fd);

}  // namespace muster
