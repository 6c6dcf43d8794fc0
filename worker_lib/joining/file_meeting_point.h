// A file that tells where rank 0 serves the store: init_method file://, and ranks of mpirun or srun
// on one node. A few lines of text, so that a person can read it. It is there only while the ranks
// meet: rank 0 removes it when all have come.
//
// What an earlier job left behind is told apart in three ways. Rank 0 holds a lock on the file as
// long as the meeting lasts (an open-file-description lock, fcntl(2): it ends with the process, and
// NFS has it too). The record names the life of rank 0's process (see process_life.h). And the
// store at the address must know the record's nonce; what does not answer there is not yet, or no
// longer, rank 0. Blocking calls; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker_lib/failure.h"
#include "worker_lib/operation.h"
#include "worker_lib/watch/process_life.h"

namespace muster::worker {

struct MeetingRecord {
  uint64_t nonce = 0;
  uint16_t port = 0;
  std::vector<std::string> addresses;  // The best first.
  std::string node;                    // node_identity(): there, loopback reaches it.
  ProcessLife life;
  std::string host;  // For people.

  std::string encode() const;
  // Nothing for anything else, half a record included.
  static std::optional<MeetingRecord> decode(std::string_view text);
  friend bool operator==(const MeetingRecord&, const MeetingRecord&) = default;
};

// Rank 0's end.
class FileMeetingPoint {
 public:
  // Makes the file, or takes over what is stale; with `make_folder` also its folder, for this user
  // only. Fails with environment where the path is no good, holds something else, or another job
  // meets there.
  static Outcome<FileMeetingPoint> open(const std::string& path, bool make_folder);
  FileMeetingPoint(FileMeetingPoint&& other) noexcept;
  FileMeetingPoint& operator=(FileMeetingPoint&& other) noexcept;
  ~FileMeetingPoint();  // Removes the file.

  Outcome<> publish(const MeetingRecord& record);

 private:
  FileMeetingPoint(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_ = -1;
};

// The others' end: the record, unless there is none or it is known to be stale. Fails with
// environment where the path can never be right: no such folder, no permission, something that is
// no meeting file, somebody else's folder (`own_folder`: it has to be this user's only).
Outcome<std::optional<MeetingRecord>> look_at_meeting_file(const std::string& path,
                                                           bool own_folder);

}  // namespace muster::worker
