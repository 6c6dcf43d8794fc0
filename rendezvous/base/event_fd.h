// A descriptor that any thread can make readable and its owner unreadable again: an eventfd(2), or
// a pipe if a sandbox refuses that (eventfd2 in old seccomp profiles).
#pragma once

#include <cstdint>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/base/unique_fd.h"

namespace muster {

// Returns one that is not readable, close-on-exec and non-blocking; on failure empty, with errno.
inline UniqueFd open_event_fd() {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  int ends[2];
  if (event || is_out_of_descriptors(errno) || ::pipe2(ends, O_CLOEXEC) != 0) return event;
  const UniqueFd from(ends[0]);
  const UniqueFd to(ends[1]);
  // Opening the pipe for reading and writing yields one descriptor for both (fifo(7)).
  event.reset(
      ::open(fmt::format("/proc/self/fd/{}", from.get()).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  return event;
}

// False if the program has closed `fd`, and perhaps opened a file of its own under that number.
inline bool may_be_event(int fd) {
  struct stat info{};  // An anonymous inode has no type of file.
  return ::fstat(fd, &info) == 0 && ((info.st_mode & S_IFMT) == 0 || S_ISFIFO(info.st_mode));
}

// Safe in a signal handler. Ignores errors: if `fd` is full, it is readable already.
inline void raise_event(int fd) {
  const uint64_t one = 1;
  if (!may_be_event(fd)) return;
  [[maybe_unused]] const ssize_t written = ::write(fd, &one, sizeof one);
}

inline void drain_event(int fd) {
  uint64_t counts[64];
  while (::read(fd, counts, sizeof counts) == sizeof counts) {
  }
}

}  // namespace muster
