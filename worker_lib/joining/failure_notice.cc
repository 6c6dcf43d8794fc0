#include "worker_lib/joining/failure_notice.h"

#include <utility>

#include "rendezvous/base/contract.h"
#include "rendezvous/base/text.h"
#include "rendezvous/store/store_client.h"

namespace muster::worker {
namespace {

constexpr std::string_view kFailed = "failed";

}  // namespace

std::optional<Failure> parse_failure_notice(std::string_view value) {
  const size_t end = value.find('\n');
  if (end == std::string_view::npos || end == 0) return std::nullopt;
  Failure failure{ErrorCode::peer_failed, std::string(value.substr(0, end))};
  const std::string_view verdict = value.substr(end + 1);
  if (verdict == "stopped") {
    failure.code = ErrorCode::stopped;
    return failure;
  }
  if (verdict == kFailed) return failure;
  if (!verdict.starts_with(kFailed) || verdict[kFailed.size()] != ' ') return std::nullopt;
  const std::optional<int> rank = whole_number<int>(verdict.substr(kFailed.size() + 1));
  if (rank.value_or(-1) < 0) return std::nullopt;
  failure.ranks.push_back({*rank});
  return failure;
}

std::function<std::optional<Failure>()> ask_agents_store(std::string host, uint16_t port,
                                                         std::chrono::milliseconds patience) {
  return [host = std::move(host), port, patience]() -> std::optional<Failure> {
    const std::string key(kFailureNoticeKey);
    Result<StoreClient> store = StoreClient::connect({host, port, patience, patience});
    if (!store || !store->wait({key})) return std::nullopt;
    const Result<std::string> value = store->get(key);
    return value ? parse_failure_notice(*value) : std::nullopt;
  };
}

}  // namespace muster::worker
