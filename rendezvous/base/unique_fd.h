// A file descriptor with one owner, which closes it. Never closes 0, 1 or 2 by accident: those are
// always passed as plain ints. Also the test for errno values that mean no descriptors are left.
#pragma once

#include <cerrno>
#include <utility>

#include <unistd.h>

namespace muster {

// True if this process (EMFILE) or its machine (ENFILE) has no descriptor left.
inline bool is_out_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE;
}

// The same, or no memory is left: what accept(2) says of the process and not of one connection.
inline bool is_out_of_resources(int error) {
  return is_out_of_descriptors(error) || error == ENOBUFS || error == ENOMEM;
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

}  // namespace muster
