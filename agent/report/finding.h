// The finders of error messages, and what they return to last_words.cc, which chooses among them:
// the traceback reader and the finders of everything else. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "agent/report/blame.h"
#include "agent/report/message_lines.h"

namespace muster {

// How much a message says about the end of its program.
enum class Standing {
  minor,          // A consequence of something else, or ignored: "Exception ignored in", an abort.
  plain,          // It may have ended the program, or have been caught and logged.
  by_excepthook,  // Printed by torch's excepthook: it ended the main thread.
};

struct Finding {
  size_t first = 0, end = 0;  // Lines.
  std::string text;
  Standing standing = Standing::plain;
  bool uncaught = false;
  bool tells_of_child = false;  // It reports a child that failed and printed the reason itself.
  std::optional<Blame> blame;
};

struct TracebackScan {
  size_t end = 0;                  // Where to continue.
  std::optional<Finding> finding;  // nullopt: the traceback is cut off.
};

// Reads Python's tracebacks in all usual forms (python_words.cc): plain, coloured, in rich's boxes,
// after torch's "[rank1]: " and loggers' headers, in chains and exception groups, and with another
// process's traceback inside (DataLoader, torch.multiprocessing). Reads only lines of the
// traceback. nullopt: none begins at that line.
std::optional<TracebackScan> scan_traceback(const MessageLines& lines, size_t at);

// Other messages (native_words.cc): of the C++ and C runtimes, the sanitizers, Rust, Go, Java, the
// Python interpreter itself, and log lines that blame a peer (torch's and JAX's loggers, NCCL).
// Reads only lines of the message. nullopt: none begins at that line.
std::optional<Finding> find_native(const MessageLines& lines, size_t at);

// All error messages, oldest first.
std::vector<Finding> find_all(const MessageLines& lines);

}  // namespace muster
