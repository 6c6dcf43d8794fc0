#include "muster/error.h"

#include <utility>

namespace muster {

const char* name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::not_initialized:
      return "not_initialized";
    case ErrorCode::not_member:
      return "not_member";
    case ErrorCode::forked:
      return "forked";
    case ErrorCode::environment:
      return "environment";
    case ErrorCode::rendezvous:
      return "rendezvous";
    case ErrorCode::timeout:
      return "timeout";
    case ErrorCode::peer_failed:
      return "peer_failed";
    case ErrorCode::aborted:
      return "aborted";
    case ErrorCode::stopped:
      return "stopped";
    case ErrorCode::mismatch:
      return "mismatch";
    case ErrorCode::backend:
      return "backend";
    case ErrorCode::system:
      return "system";
  }
  return "unknown";
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
