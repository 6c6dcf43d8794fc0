#include "worker_lib/backends/cpu/p2p_matching.h"

#include <limits>

namespace muster::worker {

void TransferMatching::post(RequestPtr request) {
  request->number = ++numbers_;
  const std::pair key{request->transfer.peer, request->transfer.tag};
  posted_.emplace(key, std::move(request));
}

RequestPtr TransferMatching::take_posted(int from, int tag) {
  auto found = posted_.end();
  for (const int named : {from, -1}) {
    const auto first = posted_.lower_bound({named, tag});
    if (first == posted_.end() || first->first != std::pair{named, tag}) continue;
    if (found == posted_.end() || first->second->number < found->second->number) found = first;
  }
  return found == posted_.end() ? nullptr : posted_.extract(found).mapped();
}

bool TransferMatching::is_posted(int from) const {
  const auto first = posted_.lower_bound({from, std::numeric_limits<int>::min()});
  return first != posted_.end() && first->first.first == from;
}

EarlyPtr TransferMatching::take_early(int from, int tag) {
  auto found = early_.end();
  for (auto at = early_.lower_bound({tag, from}); at != early_.end() && at->first.first == tag;) {
    const int sender = at->first.second;
    if (from >= 0 && sender != from) break;
    if (found == early_.end() || at->second->number < found->second->number) found = at;
    at = early_.lower_bound({tag, sender + 1});
  }
  return found == early_.end() ? nullptr : early_.extract(found).mapped();
}

EarlyPtr TransferMatching::add_early(int from, const MessageHead& head) {
  auto message = std::make_shared<EarlyMessage>();
  message->from = from;
  message->number = ++numbers_;
  message->head = head;
  message->data.resize(head.bytes);
  early_.emplace(std::pair{head.tag, from}, message);
  return message;
}

}  // namespace muster::worker
