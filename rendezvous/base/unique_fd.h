// A file descriptor with one owner, which closes it. 0, 1 and 2 are always passed as plain ints, so
// they are never closed by accident. Also classifies errno values, and loops over write and read.
#pragma once

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include <unistd.h>

#include "rendezvous/base/text.h"

namespace muster {

// True if this process (EMFILE) or its machine (ENFILE) has no descriptor left.
inline bool is_out_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE;
}

// True for errors of accept(2) after which the next connection may succeed. After any other except
// EAGAIN, the caller should wait before it accepts again: the socket stays readable.
inline bool concerns_one_connection(int error) {
  return is_one_of(error, {ECONNABORTED, EINTR, EPROTO, EPERM, ENETDOWN, EHOSTDOWN, EHOSTUNREACH,
                           ENETUNREACH, ENOPROTOOPT, ENONET, EOPNOTSUPP});
}

// Returns 0 or errno.
inline int write_whole(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

// Reads up to `bytes_max`, the end or an error. Returns "" for -1.
inline std::string read_up_to(int fd, size_t bytes_max) {
  std::string text(bytes_max, '\0');
  size_t size = 0;
  while (size < bytes_max) {
    const ssize_t got = ::read(fd, text.data() + size, bytes_max - size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  text.resize(size);
  return text;
}

}  // namespace muster
