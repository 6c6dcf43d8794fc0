// What the finders of error messages hand to last_words.cc, which chooses among them: the traceback
// reader (python_words.h) and the finders of everything else (native_words.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "agent/report/blame.h"
#include "agent/report/message_lines.h"

namespace muster {

// How much a message tells about the end of its program.
enum class Standing {
  minor,          // A consequence of something else, or ignored: "Exception ignored in", an abort.
  plain,          // It may have ended the program, or have been caught and logged.
  by_excepthook,  // torch's excepthook printed it: the interpreter's main thread ended of it.
};

struct Finding {
  size_t first = 0, end = 0;  // Lines.
  std::string text;
  Standing standing = Standing::plain;
  bool uncaught = false;
  bool tells_of_child = false;  // A process that it had started failed, and said why itself.
  std::optional<Blame> blame;
};

// All error messages, oldest first.
std::vector<Finding> find_all(const MessageLines& lines);

}  // namespace muster
