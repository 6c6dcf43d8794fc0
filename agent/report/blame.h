// Whether an error message blames another rank. If one rank of a job fails, the others lose their
// connections to it and fail as well, and their messages appear first: a verdict must tell such a
// victim from the culprit. One table in blame.cc lists what real software prints then (gloo,
// torch's store, NCCL, JAX, Open MPI, Python's own connection errors). A message about the writer's
// own fault is never in it; a doubtful one blames no rank. What muster's worker library reports is
// in a record instead (rendezvous/ring/failure_record.h). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace muster {

// What an error message says about others.
struct Blame {
  enum class About : uint8_t { loss, timeout, mismatch };

  // Global ranks that the message reports as failed, gone or missing; ascending, may be empty. If a
  // message numbers the ranks within a subgroup (as gloo's monitored barrier does), so does this.
  std::vector<int> ranks{};
  // The message is Python's own about a lost connection, which may have been to any host.
  bool any_connection = false;
  // It only tells that some rank has given up waiting. Its writer may be the one that did not come.
  bool is_hearsay = false;
  About about = About::loss;

  friend bool operator==(const Blame&, const Blame&) = default;
};

// Of the text after an exception's type: ("RuntimeError", "Connection reset by peer"). The type is
// as printed, with its module; empty if there is none (a log line). `words` may hold several lines.
std::optional<Blame> blame_of(std::string_view type, std::string_view words);

// The blame of two texts together: all ranks that either names.
Blame merged(const Blame& one, const Blame& other);

}  // namespace muster
