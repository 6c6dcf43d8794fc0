// The last bytes of a stream: what the verdict quotes when there is no log file, and what musterctl
// shows. Grows with what comes, so that quiet workers cost nothing. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster {

class TailBuffer {
 public:
  static constexpr size_t kBytesMax = size_t{64} << 10;

  explicit TailBuffer(size_t bytes_max = kBytesMax) : bytes_max_(bytes_max) {}

  void add(std::string_view bytes) {
    total_ += bytes.size();
    if (bytes.size() >= bytes_max_) {
      ring_.assign(bytes.substr(bytes.size() - bytes_max_));
      next_ = 0;
      return;
    }
    const std::string_view fits = bytes.substr(0, bytes_max_ - ring_.size());
    ring_.append(fits);
    bytes.remove_prefix(fits.size());
    while (!bytes.empty()) {
      const std::string_view part = bytes.substr(0, bytes_max_ - next_);
      ring_.replace(next_, part.size(), part);
      next_ = (next_ + part.size()) % bytes_max_;
      bytes.remove_prefix(part.size());
    }
  }

  std::string text() const { return ring_.substr(next_) + ring_.substr(0, next_); }
  uint64_t total() const { return total_; }  // Bytes that ever came.

 private:
  size_t bytes_max_;
  uint64_t total_ = 0;
  std::string ring_;  // Once it is full, the oldest byte is at next_.
  size_t next_ = 0;
};

}  // namespace muster
