// Finds the error messages of a dying program in the tail of its stderr, for the usual languages
// and libraries (tests/fixtures/last_words holds samples), and chooses the one that explains the
// end. Pure, and linear in the size of the tail, which may hold any bytes.
//
// The message that explains the end best is what torch's excepthook printed, since it ends the
// interpreter; else the last message that is not just a consequence of another (an abort, an
// exception that Python ignored). A message that blames a peer is skipped in favour of one that
// does not and that certainly ended the program or comes directly before it: a program that fails
// by itself loses its connections while it cleans up.
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
  size_t begin = 0, end = 0;   // Its bytes: whole lines, including a traceback's header.
  bool uncaught = false;       // True if it certainly ended the program that printed it: by torch's
                               // excepthook, std::terminate, an abort of the runtime, a panic.
  std::optional<Blame> blame;  // Set if it says that another rank, or the connection to one or to
                               // the store, failed: then its writer is a victim.

  friend bool operator==(const ErrorMessage&, const ErrorMessage&) = default;
};

// All error messages, oldest first. A chain of exceptions, or an exception group, is one message.
std::vector<ErrorMessage> error_messages(std::string_view stderr_tail);

// The message that explains the end best; nullopt if there is none.
std::optional<ErrorMessage> last_message(std::string_view stderr_tail);

// The text of last_message(); empty if there is none.
std::string last_words(std::string_view stderr_tail);

// Returns the blame in a message ("ValueError: boom") or call stack from an error file.
std::optional<Blame> blame_in(std::string_view text);

}  // namespace muster
