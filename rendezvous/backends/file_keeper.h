// The keeper in a file on a disk that all nodes share (RecordFile). Readers watch the beat; the
// file is removed with the job, so that its path can be used again at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/backends/host_record.h"
#include "rendezvous/backends/keeper.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {

// A job's rendezvous file, shared by many machines: link(2) decides which node may write it next,
// since exactly one caller succeeds, on NFS too. There is no lock to be broken after a crash:
//
//   PATH                 the entry X: the host's record, and the job's
//   PATH.after-X         the entry that followed X: another host, or the next round
//
// A node that may change what it read in X links its entry to PATH.after-X, and then renames it to
// PATH. Readers follow the chain from PATH. A slow node that wins PATH.after-X long after the
// others have moved on sees that PATH no longer holds X, and withdraws. Blocking calls, for a
// helper thread; no state but the path and, for a host, its open file.

// The end of the chain.
struct RecordFound {
  std::optional<HostRecord> record;  // nullopt: no file, or an empty one.
  bool is_there = false;             // PATH exists.
  uint64_t head = 0;                 // The entry in PATH; 0 for an empty file.
  std::string next;                  // The path that a successor has to link.
  JobRecord job = {};

  friend bool operator==(const RecordFound&, const RecordFound&) = default;
};

class RecordFile {
 public:
  explicit RecordFile(std::string path) : path_(std::move(path)) {}

  // Fails with ExitCode::environment if retrying is useless (no folder, no permission, a file that
  // is no record), otherwise with ExitCode::rendezvous.
  Result<RecordFound> look() const;

  // True: `record` is now the host's, and `job` the job's. False: another node was faster.
  Result<bool> take(const RecordFound& found, HostRecord record, const JobRecord& job = {});

  // Writes `beat` into our record, wherever it is. REQUIRES: take() returned true.
  void write_beat(uint64_t beat);
  // Removes the files that are still ours.
  void remove();

 private:
  Result<bool> take_with(const std::string& draft, const RecordFound& found,
                         const HostRecord& record);
  // Path of the file that `record` won; empty: PATH itself.
  std::string claim_path(const HostRecord& record) const;

  std::string path_;
  HostRecord mine_;
  UniqueFd fd_;
};

class FileKeeper : public Keeper {
 public:
  explicit FileKeeper(std::string path) : file_(std::move(path)) {}

  Result<Seen> look() override;
  void wait(const Seen& seen, Duration patience) override;
  Result<bool> take(const Seen& seen, const HostRecord& own) override;
  Result<bool> write(const HostRecord& own, const JobRecord& before, const JobRecord& now,
                     Duration remember) override;
  Result<Beat> beat(const HostRecord& own) override;
  void leave(const HostRecord&) override { file_.remove(); }

 private:
  RecordFile file_;
  uint64_t beats_ = 0;
};

}  // namespace muster
