// What a worker leaves behind of a failure that the worker library told its program of, for the
// launcher's verdict: a small file at the path that env::kFailureFile names, written by worker_lib
// and read by the agent. Lines of text, so that a person can read it:
//
//   muster-failure 1
//   time_ns 81723645000000
//   code peer_failed
//   rank 0
//   origin 2,5
//   operation all_reduce 17 of group world
//   message all_reduce 17 of group world: rank 2 (node7, pid 4711) died; its own output may say why
//   end
//
// The first line says the version; lines of other names are left out, for later versions. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

struct FailureRecord {
  int64_t time_ns = 0;    // CLOCK_MONOTONIC when this process first knew of it.
  std::string code = {};  // name_of(ErrorCode): "peer_failed".
  // Global ranks in which it began, ascending (may hold the writer itself): who died, did not come,
  // called abort(), gave the wrong path, differs from most. Empty: unknown.
  std::vector<int> origin = {};
  int rank = -1;               // The writer's own global rank; -1: it did not know it.
  std::string operation = {};  // "all_reduce 17 of group world", "load_checkpoint"; may be empty.
  std::string message = {};    // what() in one line.

  friend bool operator==(const FailureRecord&, const FailureRecord&) = default;
};

inline constexpr size_t kFailureRecordBytesMax = 16384;
// More ranks, and longer texts, are cut when they are written.
inline constexpr size_t kFailureOriginMax = 1024;
inline constexpr size_t kFailureOperationBytesMax = 256;
inline constexpr size_t kFailureMessageBytesMax = 4096;

// Control characters become spaces. What it makes can always be read. REQUIRES: a code.
std::string encode_failure_record(const FailureRecord& record);

// The bytes come from a worker: hostile. Nothing if it is not a whole one. The texts are free of
// control characters and not longer than those of encode_failure_record(), but not necessarily
// UTF-8.
std::optional<FailureRecord> parse_failure_record(std::string_view bytes);

}  // namespace muster
