// Error messages other than Python's tracebacks: of the C++ and C runtimes, the sanitizers, Rust,
// Go, Java, the Python interpreter itself, and log lines that blame a peer (torch's and JAX's
// loggers, NCCL, muster's worker library). Pure.
#pragma once

#include <cstddef>
#include <optional>

#include "agent/report/finding.h"

namespace muster {

// The message that begins at that line; nullopt: none does. Reads only lines of the message.
std::optional<Finding> find_native(const MessageLines& lines, size_t at);

}  // namespace muster
