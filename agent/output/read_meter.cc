#include "agent/output/read_meter.h"

#include <algorithm>
#include <cerrno>

#include <sys/ioctl.h>
#include <unistd.h>

namespace muster {

ssize_t ReadMeter::read(char* buffer, size_t size) {
  const std::lock_guard lock(mutex_);
  for (;;) {
    const ssize_t n = ::read(fd_.get(), buffer, size);
    if (n >= 0) {
      total_ += static_cast<uint64_t>(n);
      return n;
    }
    if (errno == EAGAIN) return -1;
    if (errno != EINTR) return 0;
  }
}

void ReadMeter::close() {
  const std::lock_guard lock(mutex_);
  fd_.reset();
}

void ReadMeter::mark_stop() {
  const std::lock_guard lock(mutex_);
  if (mark_) return;
  int waiting = 0;
  if (fd_ && ::ioctl(fd_.get(), FIONREAD, &waiting) != 0) waiting = 0;
  mark_ = total_ + static_cast<uint64_t>(std::max(waiting, 0));
}

uint64_t ReadMeter::before_stop() const {
  const std::lock_guard lock(mutex_);
  return mark_.value_or(total_);
}

}  // namespace muster
