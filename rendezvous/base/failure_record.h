// The record of a failure that the worker library reported to its program, for the launcher's
// verdict: a small file at the path in env::kFailureFile, written by worker_lib and read by the
// agent. It consists of lines of text, so that people can read it:
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
// Line 1 holds the version; unknown names are ignored, so later versions may add them. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

struct FailureRecord {
  int64_t time_ns = 0;    // CLOCK_MONOTONIC when this process first learned of it.
  std::string code = {};  // name_of(ErrorCode): "peer_failed".
  // Global ranks where it began, ascending (may include the writer): ranks that died, did not
  // arrive, called abort(), gave the wrong path, or differ from most. Empty: unknown.
  std::vector<int> origin = {};
  int rank = -1;               // The writer's own global rank; -1: unknown to it.
  std::string operation = {};  // "all_reduce 17 of group world", "load_checkpoint"; may be empty.
  std::string message = {};    // what() in one line.

  friend bool operator==(const FailureRecord&, const FailureRecord&) = default;
};

inline constexpr size_t kFailureRecordBytesMax = 16384;
// The writer drops ranks beyond the maximum and truncates longer texts.
inline constexpr size_t kFailureOriginMax = 1024;
inline constexpr size_t kFailureOperationBytesMax = 256;
inline constexpr size_t kFailureMessageBytesMax = 4096;

// Replaces control characters with spaces. The result can always be parsed. REQUIRES: a code.
std::string encode_failure_record(const FailureRecord& record);

// The bytes come from a worker and are untrusted. nullopt unless they are one complete record. The
// texts contain no control characters and are no longer than those of encode_failure_record(), but
// are not necessarily UTF-8.
std::optional<FailureRecord> parse_failure_record(std::string_view bytes);

}  // namespace muster
