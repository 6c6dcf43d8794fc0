// A line of muster's on stderr, for processes without an output thread, or before theirs runs.
// Any thread. Blocks while stderr is not read.
#pragma once

#include <string>

#include <unistd.h>

namespace muster {

// Prints "muster: <text>". A failure cannot be reported.
inline void print_line(const std::string& text) {
  const std::string line = "muster: " + text + "\n";
  [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace muster
