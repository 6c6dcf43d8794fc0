// Records the calls of one lane (rank_progress.h) in this process's ring: a group's collectives on
// host memory, those on GPU memory, or its monitored barriers. Each lane is a group of the ring.
//
// Plain values, made by a Recorder; their ring lives as long as the process. An empty one (without
// a launcher) records nothing. The collectives of a lane are recorded by one thread at a time.
#pragma once

#include <cstdint>
#include <string_view>

#include "rendezvous/ring/ring_writer.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// A recorded call, until its end is known. Any thread. An aggregate, so that the writer's result is
// constructed in place: copying it would add half as much to the cost of recording.
struct CallRecord {
  explicit operator bool() const { return writer != nullptr; }
  uint64_t number() const { return pending.ordinal; }

  // The call has been enqueued on its stream.
  void launched() const {
    if (writer != nullptr) writer->launched(pending);
  }
  void completed() const {
    if (writer != nullptr) writer->completed(pending);
  }
  void failed() const {
    if (writer != nullptr) writer->failed(pending);
  }
  // completed() or failed() for a call whose end is noticed later, by any thread and in any order.
  void ended(bool is_success) const;
  // The call was refused before anything was sent. REQUIRES: the last collective of its lane.
  void withdrawn() const {
    if (writer != nullptr) writer->withdrawn(pending);
  }

  ring::RingWriter* writer = nullptr;
  ring::Pending pending = {};
};

class LaneRecorder {
 public:
  LaneRecorder() = default;
  LaneRecorder(ring::RingWriter* writer, int32_t group) : writer_(writer), group_(group) {}

  explicit operator bool() const { return writer_ != nullptr; }

  // `number`: the call's ordinal in its lane. `is_awaited`: the caller waits until it is done.
  CallRecord called(const Operation& operation, bool is_awaited) const {
    return writer_ == nullptr ? CallRecord() : record(operation, is_awaited);
  }
  CallRecord called(const Transfer& transfer, bool is_awaited) const {
    return writer_ == nullptr ? CallRecord() : record(transfer, is_awaited);
  }
  CallRecord called(uint64_t number, const ring::Call& call, const void* site) const {
    if (writer_ == nullptr) return {};
    return {writer_, writer_->called(group_, number, call, site)};
  }

  void become(ring::GroupState state) const {
    if (writer_ != nullptr) writer_->set_state(group_, state);
  }
  // Keeps the process's first failure.
  void note_failure(std::string_view message) const {
    if (writer_ != nullptr) writer_->note_failure(group_, message);
  }

 private:
  CallRecord record(const Operation& operation, bool is_awaited) const;
  CallRecord record(const Transfer& transfer, bool is_awaited) const;

  ring::RingWriter* writer_ = nullptr;
  int32_t group_ = -1;
};

}  // namespace muster::worker
