// What to say of a chain of exceptions in one line, and whom it blames. A person needs the
// exception that ended the program and the one it came from: "RuntimeError: no shard 3 (caused by
// KeyError: 'x')". Whom the chain blames is decided by its root: a program that fails by itself and
// then loses its connections while it cleans up is no victim, and one that wraps a lost connection
// in an exception of its own is one. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/report/blame.h"

namespace muster {

struct RaisedException {
  enum class After { nothing, cause, context };  // raise X from Y; raise X while handling Y.

  std::string type;
  std::string text;  // One line, type included.
  std::optional<Blame> blame;
  After after = After::nothing;
};

// REQUIRES: not empty; oldest first.
RaisedException told_of_chain(const std::vector<RaisedException>& chain);

// An exception group as one exception: all that it holds, and a victim if all of them are.
// REQUIRES: not empty.
RaisedException told_of_group(const std::vector<RaisedException>& leaves);

}  // namespace muster
