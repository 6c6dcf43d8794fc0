// How much a worker had printed on one stream when muster began to stop it: what it prints after
// that may be caused by the stop. The output thread may be far behind its pipes at that moment, so
// the bytes still in the pipe are counted as well, by the control thread, which must not wait for
// the output thread. The lock is held for one read(2) of a non-blocking descriptor or one ioctl(2).
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

  // Output thread. Returns the bytes read; 0 at the end (EIO on a terminal); -1 if there are none.
  ssize_t read(char* buffer, size_t size);
  void close();
  int fd() const { return fd_.get(); }

  // Any thread: everything printed until now counts as printed before the stop. Only the first call
  // has an effect.
  void mark_stop();
  // Bytes that came before mark_stop(); all bytes if it was not called.
  uint64_t before_stop() const;

 private:
  mutable std::mutex mutex_;
  UniqueFd fd_;
  uint64_t total_ = 0;
  std::optional<uint64_t> mark_;
};

}  // namespace muster
