// How much a worker had printed on one stream at the moment when muster's stop began: what it
// prints after that may be the stop's doing. The output thread may be far behind its pipes then, so
// the bytes that wait in the pipe are counted, too, and by the control thread, which must not wait
// for the other one. The lock is held for one read(2) of a non-blocking descriptor, or one
// ioctl(2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include <sys/types.h>

#include "rendezvous/base/unique_fd.h"

namespace muster {

class ReadMeter {
 public:
  explicit ReadMeter(UniqueFd fd) : fd_(std::move(fd)) {}

  // Output thread. Bytes read; 0 at the end (for a terminal that is EIO); -1 if there is nothing
  // now.
  ssize_t read(char* buffer, size_t size);
  void close();
  int fd() const { return fd_.get(); }

  // Any thread: what was printed until now counts as printed before the stop. Only the first call
  // does anything.
  void mark_stop();
  // Bytes that came before it; all of them, if it never came.
  uint64_t before_stop() const;

 private:
  mutable std::mutex mutex_;
  UniqueFd fd_;
  uint64_t total_ = 0;
  std::optional<uint64_t> mark_;
};

}  // namespace muster
