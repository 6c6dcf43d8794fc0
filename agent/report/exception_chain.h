// How to describe a chain of exceptions in one line, and which ranks it blames. The user needs the
// exception that ended the program and the one it came from: "RuntimeError: no shard 3 (caused by
// KeyError: 'x')". The root of the chain decides the blame: a program that fails by itself and then
// loses its connections while it cleans up is not a victim; one that wraps a lost connection in its
// own exception is. Pure.
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

// REQUIRES: `chain` is not empty; oldest first.
RaisedException told_of_chain(const std::vector<RaisedException>& chain);

// An exception group as one exception: the texts of its first three leaves; a victim only if all
// leaves are. REQUIRES: not empty.
RaisedException told_of_group(const std::vector<RaisedException>& leaves);

}  // namespace muster
