// A file that says where rank 0 serves the store: for init_method file://, and for ranks of mpirun
// or srun on one node. A few readable lines of text. Rank 0 removes it when all ranks have met.
//
// Remains of an earlier job are recognised in three ways. Rank 0 locks the file during the meeting
// (an open-file-description lock, fcntl(2): it ends with the process, and NFS supports it). The
// record names the life of rank 0's process (process_life.h). And the store at the address must
// have the record's nonce; otherwise rank 0 is not there yet, or no longer. Blocking calls; one
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/unique_fd.h"
#include "worker_lib/failure.h"
#include "worker_lib/operation.h"
#include "worker_lib/watch/process_life.h"

namespace muster::worker {

struct MeetingRecord {
  uint64_t nonce = 0;
  uint16_t port = 0;
  std::vector<std::string> addresses;  // The best first.
  std::string node;                    // node_identity(): loopback reaches it there.
  ProcessLife life;
  std::string host;         // Shown in messages.
  std::string secret = {};  // The job's (bytes), if the file is private; see job_secret.h.
  // True if nothing is served: all ranks know a server, and the nonce names their keys there.
  bool is_at_server = false;

  std::string encode() const;
  // nullopt: malformed or incomplete.
  static std::optional<MeetingRecord> decode(std::string_view text);
  friend bool operator==(const MeetingRecord&, const MeetingRecord&) = default;
};

// Rank 0's side.
class FileMeetingPoint {
 public:
  // Creates the file, or takes over a stale one; `make_folder`: and its folder, for this user only.
  // Fails with environment if the path is unusable or taken by something else or another job.
  static Outcome<FileMeetingPoint> open(const std::string& path, bool make_folder);
  FileMeetingPoint(FileMeetingPoint&&) = default;
  ~FileMeetingPoint();  // Removes the file.

  // True if no other user can read it.
  bool is_private() const;
  Outcome<> publish(const MeetingRecord& record);

 private:
  FileMeetingPoint(std::string path, UniqueFd file)
      : path_(std::move(path)), file_(std::move(file)) {}
  std::string path_;
  UniqueFd file_;
};

// Returns the record, on the other ranks; nullopt: none, or known to be stale. Fails with
// environment if the path can never be right: no such folder, no permission, not a meeting file, or
// another user's folder (`own_folder`: it must belong to this user alone).
Outcome<std::optional<MeetingRecord>> look_at_meeting_file(const std::string& path,
                                                           bool own_folder);

}  // namespace muster::worker
