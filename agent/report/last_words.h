// Finds what a dying program said about its end in the tail of its stderr, for the usual languages:
// Python (tracebacks, syntax errors, exception groups), C++ (uncaught exceptions), C assertions,
// Rust and Go panics, Java, sanitizers. Pure.
#pragma once

#include <string>
#include <string_view>

namespace muster {

// One cleaned line, "ValueError: boom", for the last such message in the tail; empty if there is
// none.
std::string last_words(std::string_view stderr_tail);

}  // namespace muster
