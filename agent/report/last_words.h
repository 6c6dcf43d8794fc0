// Finds what a dying program said about its end in the tail of its stderr, for the usual languages
// and libraries (tests/fixtures/last_words holds what they print), and chooses the message that
// explains the end. Pure, and linear in the size of the tail, whose bytes may be anything.
//
// The message that explains the end best: what torch's excepthook printed, since the interpreter
// ends of it; else the last message that is not a mere consequence of another (an abort, an
// exception that Python ignored). A message that blames a peer is passed over for one that does not
// and that certainly ended the program, or that stands directly before it: a program that fails by
// itself loses its connections while it cleans up.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/report/blame.h"

namespace muster {

struct ErrorMessage {
  std::string text;            // One cleaned line for the headline: "ValueError: boom".
  size_t begin = 0, end = 0;   // Its bytes: whole lines, a traceback's header included.
  bool uncaught = false;       // Certain to have ended the program that printed it: by torch's
                               // excepthook, std::terminate, an abort of the runtime, a panic.
  std::optional<Blame> blame;  // It says that another rank, or the connection to one or to the
                               // store, failed: then its writer is a victim.

  friend bool operator==(const ErrorMessage&, const ErrorMessage&) = default;
};

// All error messages that the text holds, oldest first. A chain of exceptions, or an exception
// group, is one message.
std::vector<ErrorMessage> error_messages(std::string_view stderr_tail);

// The message that explains the end best; none if there is no message.
std::optional<ErrorMessage> last_message(std::string_view stderr_tail);

// Its text; empty if there is none.
std::string last_words(std::string_view stderr_tail);

// The same judgement for a message ("ValueError: boom") or a call stack that comes from elsewhere:
// torch's error file.
std::optional<Blame> blame_in(std::string_view text);

}  // namespace muster
