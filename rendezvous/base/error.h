// Error handling: a bug of ours fails a CHECK, in release builds too; a failure of the environment
// is a Result or an event of a machine; exceptions of a library are caught at the call. An Error's
// message says what was tried, on what, and what the user can do.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include <tl/expected.hpp>

#include "rendezvous/base/contract.h"

namespace muster {

struct Error {
  ExitCode code = ExitCode::internal;
  std::string message;  // One line, no trailing full stop, no newline.

  friend bool operator==(const Error&, const Error&) = default;
};

// A value, or an event, without fields.
struct Nothing {
  friend bool operator==(const Nothing&, const Nothing&) = default;
};

template <typename T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(ExitCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

[[noreturn]] inline void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "muster: internal error: CHECK(%s) failed at %s:%d [this is a bug]\n",
               condition, file, line);
  std::abort();
}

}  // namespace muster

#define CHECK(condition)                                      \
  do {                                                        \
    if (!(condition)) [[unlikely]] {                          \
      ::muster::check_failed(#condition, __FILE__, __LINE__); \
    }                                                         \
  } while (false)
