// The last 64 KiB of a stream: what the verdict quotes when there is no log file. Grows with what
// comes, so that quiet workers cost nothing. Pure.
#pragma once

#include <string>
#include <string_view>

namespace muster {

class TailBuffer {
 public:
  static constexpr size_t kBytesMax = size_t{64} << 10;

  void add(std::string_view bytes) {
    if (bytes.size() >= kBytesMax) {
      ring_.assign(bytes.substr(bytes.size() - kBytesMax));
      next_ = 0;
      return;
    }
    const std::string_view fits = bytes.substr(0, kBytesMax - ring_.size());
    ring_.append(fits);
    bytes.remove_prefix(fits.size());
    while (!bytes.empty()) {
      const std::string_view part = bytes.substr(0, kBytesMax - next_);
      ring_.replace(next_, part.size(), part);
      next_ = (next_ + part.size()) % kBytesMax;
      bytes.remove_prefix(part.size());
    }
  }

  std::string text() const { return ring_.substr(next_) + ring_.substr(0, next_); }

 private:
  std::string ring_;  // Once it is full, the oldest byte is at next_.
  size_t next_ = 0;
};

}  // namespace muster
