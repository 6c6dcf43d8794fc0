// The file at which a job meets, as one object that many machines share: who may write it next is
// decided by link(2), which of all callers exactly one wins, on NFS as well. Nothing here is a
// lock, so nothing has to be broken after a crash:
//
//   PATH                 the record of the host X
//   PATH.after-X         the record of the host that followed X, once X's address did not answer
//
// Whoever finds X dead links its record to PATH.after-X; the winner then renames it to PATH.
// Readers follow the chain from PATH. A slow one that wins PATH.after-X long after everything went
// on sees that PATH is not X's any more, and retreats. Blocking calls, for a helper thread; no
// state but the path and, for a host, its open file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/backends/host_record.h"
#include "rendezvous/base/error.h"

namespace muster {

// What stands at the end of the chain.
struct RecordFound {
  std::optional<HostRecord> record;  // Nothing: no file, or an empty one.
  bool is_there = false;             // PATH exists.
  uint64_t head = 0;                 // The instance in PATH; 0 for an empty file.
  std::string next;                  // What a successor has to link.

  friend bool operator==(const RecordFound&, const RecordFound&) = default;
};

class RecordFile {
 public:
  explicit RecordFile(std::string path) : path_(std::move(path)) {}
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;
  ~RecordFile();

  // Fails with ExitCode::environment where trying again is of no use (no folder, no permission, a
  // file that is no record), otherwise with ExitCode::rendezvous.
  Result<RecordFound> look() const;

  // True: `record` is the host's now. False: somebody was faster.
  Result<bool> take(const RecordFound& found, HostRecord record);

  // REQUIRES: take() said true. `beat` into our record, wherever it is.
  void write_beat(uint64_t beat);
  // Removes what is still ours.
  void remove();

 private:
  Result<std::string> read_text(const std::string& path, bool& is_there) const;
  Result<bool> take_with(const std::string& draft, const RecordFound& found,
                         const HostRecord& record);

  std::string path_;
  HostRecord mine_;
  int fd_ = -1;
};

}  // namespace muster
