// The recorder of this process: writes this rank's collectives, groups and sections into the ring
// that the launcher's agent reads (rendezvous/ring/ring_layout.h), so that a hang can be explained.
// Null if there is no ring (MUSTER_RECORD_FD).
//
// Attached by the first init_process_group(), since a process that only forks ranks must not own
// the ring. Never destroyed: threads of the library record until the process ends. Any thread.
//
//   init_process_group ─▶ begin_world(): "world" is forming ─▶ open(): a Group takes it over
//                                 └─▶ end_world(): the ranks did not meet
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "worker_lib/recorder/lane_recorder.h"

namespace muster::worker {

class Recorder {
 public:
  explicit Recorder(std::unique_ptr<ring::RingWriter> writer);
  Recorder(Recorder&&) = delete;

  // Begins an init_process_group(). From the second one on, "@2" and so on is appended to the ids
  // of groups: the ring may still show earlier ones, and all ranks count alike.
  void begin_world(int size, int rank);
  // The init_process_group() failed before there was a group.
  void end_world(std::string_view why);

  // Opens a lane in state `forming`. Its id in the ring is that of the group and `part` ("/cuda").
  LaneRecorder open(const ring::GroupFacts& facts, std::string_view part);

  // True if the launcher has warned of the job's end.
  bool is_warned() const { return writer_->is_warned(); }

  // See RingWriter.
  const void* name_site(std::string_view text) { return writer_->name_site(text); }

  // Sections nest; surplus calls of leave_section() are no-ops.
  void enter_section(std::string_view name);
  void leave_section();

 private:
  std::string unique(std::string_view id) const;  // REQUIRES: mutex_ is held.

  const std::unique_ptr<ring::RingWriter> writer_;
  std::mutex mutex_;
  int worlds_ = 0;
  std::optional<LaneRecorder> world_;  // From begin_world() until a Group takes it over.
};

// Id and name of the group of all ranks.
inline constexpr std::string_view kWorldGroup = "world";

// Returns the process's recorder or nullptr. One load.
Recorder* process_recorder() noexcept;
// Attaches it if `record_fd` (the value of MUSTER_RECORD_FD) names a ring that no living process
// owns; prints once on standard error why it cannot. One thread at a time.
Recorder* attach_process_recorder(const std::optional<std::string>& record_fd, int rank);

}  // namespace muster::worker
