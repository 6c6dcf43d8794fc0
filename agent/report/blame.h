// Decides whether an error message blames another rank. When a rank fails, the others lose their
// connections to it and fail too, and their messages appear first: a verdict must not blame such a
// victim. A table in blame.cc lists what real software prints then (gloo, torch's store, NCCL,
// JAX, Open MPI, Python's connection errors). It has no message about the writer's own fault; a
// doubtful message blames no rank. muster's worker library reports in a record instead
// (rendezvous/ring/failure_record.h). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace muster {

struct Blame {
  enum class About : uint8_t { loss, timeout, mismatch };

  // Ranks that the message reports as failed, gone or missing; ascending, may be empty. Global,
  // unless the message numbers them within a subgroup, as gloo's monitored barrier does.
  std::vector<int> ranks{};
  // True for Python's own connection errors: the connection may have been to any host.
  bool any_connection = false;
  // True if it only reports that some rank gave up waiting, perhaps for its writer.
  bool is_hearsay = false;
  About about = About::loss;

  friend bool operator==(const Blame&, const Blame&) = default;
};

// Returns the blame in ("RuntimeError", "Connection reset by peer"). `type`: as printed, with its
// module; empty for a log line. `words`: the text after it, which may have several lines.
std::optional<Blame> blame_of(std::string_view type, std::string_view words);

// The blame of two texts together: all ranks that either names.
Blame merged(const Blame& one, const Blame& other);

}  // namespace muster
