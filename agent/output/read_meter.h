// Counts what a worker had printed on one stream when muster began to stop it, which may cause
// later output. The output thread may be far behind its pipes then, so the control thread, which
// must not wait for it, also counts the bytes still in the pipe. The lock is held for one read(2)
// of a non-blocking descriptor or one ioctl(2).
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

  // Output thread. Returns the bytes read; 0 at the end (EIO on a terminal); -1: none yet.
  ssize_t read(char* buffer, size_t size);
  void close();
  int fd() const { return fd_.get(); }

  // Any thread. Everything printed until now precedes the stop. Only the first call has an effect.
  void mark_stop();
  // Bytes printed before mark_stop(); all bytes read if it was not called.
  uint64_t before_stop() const;

 private:
  mutable std::mutex mutex_;
  UniqueFd fd_;
  uint64_t total_ = 0;
  std::optional<uint64_t> mark_;
};

}  // namespace muster
