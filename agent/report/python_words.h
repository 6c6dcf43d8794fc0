// Reads Python's tracebacks in all usual forms: plain, coloured, in rich's boxes, after torch's
// "[rank1]: " and loggers' headers, in chains and exception groups, and with another process's
// traceback inside (DataLoader, torch.multiprocessing). Pure.
#pragma once

#include <cstddef>
#include <optional>

#include "agent/report/finding.h"

namespace muster {

struct TracebackScan {
  size_t end = 0;                  // Where to continue.
  std::optional<Finding> finding;  // nullopt: the traceback is cut off.
};

// nullopt: no traceback begins at that line. Reads only lines of the traceback.
std::optional<TracebackScan> scan_traceback(const MessageLines& lines, size_t at);

}  // namespace muster
