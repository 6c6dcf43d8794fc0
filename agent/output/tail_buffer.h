// The last bytes of a stream, for the verdict's quotes, for musterctl, and to keep of a worker
// without a log file. Grows on demand, so that quiet workers cost nothing. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster {

// The sizes of the tails of stderr and stdout that are searched for an error message.
inline constexpr size_t kQuotedBytesMax = size_t{64} << 10;
inline constexpr size_t kOutQuotedBytesMax = size_t{16} << 10;

class TailBuffer {
 public:
  explicit TailBuffer(size_t bytes_max) : bytes_max_(bytes_max) {}

  void add(std::string_view bytes) {
    total_ += bytes.size();
    if (bytes_max_ == 0) return;
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
  std::string last(size_t bytes_max) const {
    if (bytes_max >= ring_.size()) return text();
    if (bytes_max <= next_) return ring_.substr(next_ - bytes_max, bytes_max);
    return ring_.substr(ring_.size() - (bytes_max - next_)) + ring_.substr(0, next_);
  }
  // Complete lines and an unfinished last one; a line without its start only if it is all there is.
  std::string last_lines(size_t lines_max) const {
    std::string all = text();
    size_t start = all.size();
    for (size_t lines = 0; lines < lines_max && start > 0; ++lines) {
      const size_t end = start < 2 ? std::string::npos : all.rfind('\n', start - 2);
      if (end == std::string::npos && all.size() < total_) break;
      start = end == std::string::npos ? 0 : end + 1;
    }
    return start < all.size() ? all.substr(start) : all;
  }
  uint64_t total() const { return total_; }  // All bytes received so far.

 private:
  size_t bytes_max_;
  uint64_t total_ = 0;
  std::string ring_;  // The oldest byte is at next_ once it is full.
  size_t next_ = 0;
};

}  // namespace muster
