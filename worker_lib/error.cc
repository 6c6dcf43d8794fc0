#include "muster/error.h"

#include <array>
#include <utility>

namespace muster {

const char* name_of(ErrorCode code) {
  static constexpr std::array kNames{
      "invalid_argument", "not_initialized", "not_member",  "forked",  "environment",
      "rendezvous",       "timeout",         "peer_failed", "aborted", "stopped",
      "mismatch",         "backend",         "system"};
  static_assert(kNames.size() == static_cast<size_t>(ErrorCode::system));
  const size_t i = static_cast<size_t>(code) - 1;  // The codes begin with 1.
  return i < kNames.size() ? kNames[i] : "unknown";
}

DistributedError::DistributedError(ErrorCode code, const std::string& message,
                                   std::string operation, std::string group,
                                   std::vector<GlobalRank> failed_ranks)
    : std::runtime_error(message),
      code_(code),
      details_(std::make_shared<const Details>(
          Details{std::move(operation), std::move(group), std::move(failed_ranks)})) {}

DistributedError::~DistributedError() = default;

}  // namespace muster
