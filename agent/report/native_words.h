// Error messages that are not Python's tracebacks: of the C++ and C runtimes, the sanitizers, Rust,
// Go, Java, the Python interpreter itself, and lines of logs that blame a peer (torch's and JAX's
// loggers, NCCL, muster's worker library). Pure.
#pragma once

#include <cstddef>
#include <optional>

#include "agent/report/finding.h"

namespace muster {

// The message that begins at that line; none: the line begins none. Looks forward only over lines
// that belong to the message.
std::optional<Finding> find_native(const MessageLines& lines, size_t at);

}  // namespace muster
