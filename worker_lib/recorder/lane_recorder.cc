#include "worker_lib/recorder/lane_recorder.h"

#include <mutex>

#include "worker_lib/recorder/call_site.h"
#include "worker_lib/recorder/ring_calls.h"

namespace muster::worker {

// Serialised: a lane's counter of completed calls must not go back.
void CallRecord::ended(bool is_success) const {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  is_success ? completed() : failed();
}

CallRecord LaneRecorder::record(const Operation& operation, bool is_awaited) const {
  return called(operation.sequence, ring_call_of(operation, is_awaited), operation.site);
}

CallRecord LaneRecorder::record(const Transfer& transfer, bool is_awaited) const {
  return {writer_, writer_->message_called(group_, ring_call_of(transfer, is_awaited), transfer.tag,
                                           CallSite::current())};
}

}  // namespace muster::worker
