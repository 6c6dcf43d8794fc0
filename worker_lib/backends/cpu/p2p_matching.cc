#include "worker_lib/backends/cpu/p2p_matching.h"

#include <algorithm>

namespace muster::worker {
namespace {

bool takes(const TransferRequest& request, int from, int tag) {
  const int wanted = request.transfer.peer;
  return request.transfer.tag == tag && (wanted == from || wanted < 0);
}

}  // namespace

RequestPtr TransferMatching::take_posted(int from, int tag) {
  const auto found = std::find_if(posted_.begin(), posted_.end(),
                                  [&](const RequestPtr& one) { return takes(*one, from, tag); });
  if (found == posted_.end()) return nullptr;
  RequestPtr request = std::move(*found);
  posted_.erase(found);
  return request;
}

bool TransferMatching::awaits(int from) const {
  return std::any_of(posted_.begin(), posted_.end(), [&](const RequestPtr& one) {
    return one->transfer.peer == from || one->transfer.peer < 0;
  });
}

EarlyMessage* TransferMatching::find_early(int from, int tag) {
  const auto found = std::find_if(early_.begin(), early_.end(), [&](const EarlyMessage& one) {
    return one.claimed == nullptr && one.head.tag == tag && (from < 0 || one.from == from);
  });
  return found == early_.end() ? nullptr : &*found;
}

EarlyMessage* TransferMatching::add_early(int from, const MessageHead& head) {
  early_.emplace_back();
  EarlyMessage& message = early_.back();
  message.from = from;
  message.head = head;
  message.data.resize(head.bytes);
  return &message;
}

void TransferMatching::drop_early(const EarlyMessage* message) {
  early_.remove_if([&](const EarlyMessage& one) { return &one == message; });
}

}  // namespace muster::worker
