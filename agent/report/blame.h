// Whether an error message accuses another rank. When one rank of a job fails, the others lose
// their connections to it and fail as well, and their messages are on the screen first: a verdict
// must tell such a victim from the culprit. What real software prints then (gloo, torch's store,
// NCCL, JAX, Open MPI, Python's own connection errors, muster's worker library) is one table in
// blame.cc. A message that is its writer's own fault is never in it: a doubtful one blames nobody.
// Pure.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace muster {

// What an error message says of others.
struct Blame {
  // Global ranks that the words name as having failed, gone or not come; ascending, may be empty.
  // Where a message counts the ranks of a subgroup (gloo's monitored barrier does), so does this.
  std::vector<int> ranks;
  // The words are Python's own of a connection that was lost, which may have led to anybody.
  bool any_connection = false;

  friend bool operator==(const Blame&, const Blame&) = default;
};

// Of the text behind an exception's type: ("RuntimeError", "Connection reset by peer"). The type is
// as printed, with its module; empty where there is none (a line of a log). `words` may hold
// several lines.
std::optional<Blame> blame_of(std::string_view type, std::string_view words);

// The same of words and more words: all ranks that either names.
Blame merged(const Blame& one, const Blame& other);

}  // namespace muster
