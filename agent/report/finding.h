// What the finders of error messages return to last_words.cc, which chooses among them: the
// traceback reader (python_words.h) and the finders of everything else (native_words.h).
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

// All error messages, oldest first.
std::vector<Finding> find_all(const MessageLines& lines);

}  // namespace muster
