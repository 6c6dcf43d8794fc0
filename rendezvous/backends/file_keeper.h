// The keeper in a file on a disk that all nodes share (record_file.h). Readers watch the beat; the
// file is removed with the job, so that its path can be used again at once.
#pragma once

#include <string>

#include "rendezvous/backends/keeper.h"
#include "rendezvous/backends/record_file.h"

namespace muster {

class FileKeeper : public Keeper {
 public:
  explicit FileKeeper(std::string path) : file_(std::move(path)) {}

  Result<Seen> look() override;
  void wait(const Seen& seen, Duration patience) override;
  Result<bool> take(const Seen& seen, const HostRecord& own) override;
  Result<bool> write(const HostRecord& own, const JobRecord& before, const JobRecord& now,
                     Duration remember) override;
  Result<Beat> beat(const HostRecord& own) override;
  void leave(const HostRecord& own) override;

 private:
  RecordFile file_;
  uint64_t beats_ = 0;
};

}  // namespace muster
