// Reads Python's tracebacks as people meet them: plain, coloured, in rich's boxes, behind torch's
// "[rank1]: " and loggers' headers, in chains and exception groups, and with another process's
// traceback inside (DataLoader, torch.multiprocessing). Pure.
#pragma once

#include <cstddef>
#include <optional>

#include "agent/report/finding.h"

namespace muster {

struct TracebackScan {
  size_t end = 0;                  // Where to go on.
  std::optional<Finding> finding;  // None: the traceback is cut off.
};

// None: no traceback begins at that line. Looks forward only over lines that belong to it.
std::optional<TracebackScan> scan_traceback(const MessageLines& lines, size_t at);

}  // namespace muster
