// Finders of error messages, in tracebacks and elsewhere, and the findings that they return to
// last_words.cc, which chooses. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "agent/report/blame.h"
#include "agent/report/message_lines.h"

namespace muster {

// The weight of a message as the explanation of its program's end.
enum class Standing {
  echo,           // Tells of an abort() whose caller has printed the reason.
  minor,          // A consequence of something else, or ignored: "Exception ignored in", an abort.
  plain,          // It may have ended the program, or have been caught and logged.
  by_excepthook,  // Printed by torch's excepthook: it ended the main thread.
};

struct Finding {
  size_t first = 0, end = 0;  // Lines [first, end).
  std::string text;
  Standing standing = Standing::plain;
  bool uncaught = false;
  bool tells_of_child = false;  // True if it reports a failed child that printed the reason itself.
  std::optional<Blame> blame;
};

struct TracebackScan {
  size_t end = 0;                  // Line to continue at.
  std::optional<Finding> finding;  // nullopt: the traceback is cut off.
};

// Reads Python's tracebacks in all usual forms (python_words.cc): plain, coloured, in rich's boxes,
// after torch's "[rank1]: " and loggers' headers, in chains and exception groups, and with another
// process's traceback inside (DataLoader, torch.multiprocessing). Reads only lines of the
// traceback. nullopt: none begins at that line.
std::optional<TracebackScan> scan_traceback(const MessageLines& lines, size_t at);
// Reads a traceback of which only the last frames are left; nullopt: the lines begin otherwise.
std::optional<TracebackScan> scan_cut_traceback(const MessageLines& lines);

// Finds other messages (native_words.cc): those of the C++ and C runtimes, sanitizers, Rust, Go,
// Java, the Python interpreter itself, and log lines that blame a peer (torch's and JAX's loggers,
// NCCL). Reads only lines of the message. nullopt: none begins at that line.
std::optional<Finding> find_native(const MessageLines& lines, size_t at);

// All error messages, oldest first.
std::vector<Finding> find_all(const MessageLines& lines);

}  // namespace muster
