#include "agent/output/sink.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <poll.h>
#include <sys/uio.h>

namespace muster {

namespace {

struct WriteEnd {
  size_t written = 0;
  int error = 0;
};

size_t bytes_in(const std::vector<std::string_view>& pieces) {
  size_t total = 0;
  for (const std::string_view piece : pieces)
    total += piece.size();
  return total;
}

// Removes the first `bytes` of what is left to write.
void skip_written(std::vector<iovec>& vectors, size_t& first, size_t bytes) {
  while (first < vectors.size() && bytes >= vectors[first].iov_len)
    bytes -= vectors[first++].iov_len;
  if (bytes == 0) return;
  vectors[first].iov_base = static_cast<char*>(vectors[first].iov_base) + bytes;
  vectors[first].iov_len -= bytes;
}

// Another process may share the descriptor and have made it non-blocking; then wait for room.
void wait_writable(int fd) {
  pollfd entry{fd, POLLOUT, 0};
  ::poll(&entry, 1, -1);
}

WriteEnd write_pieces(int fd, const std::vector<std::string_view>& pieces) {
  constexpr size_t kVectorsMax = 512;  // Below IOV_MAX.
  std::vector<iovec> vectors;
  vectors.reserve(pieces.size());
  for (const std::string_view piece : pieces) {
    if (!piece.empty()) vectors.push_back({const_cast<char*>(piece.data()), piece.size()});
  }
  WriteEnd end;
  for (size_t first = 0; first < vectors.size();) {
    const auto count = static_cast<int>(std::min(vectors.size() - first, kVectorsMax));
    const ssize_t n = ::writev(fd, &vectors[first], count);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      wait_writable(fd);
      continue;
    }
    if (n <= 0) {
      end.error = n < 0 ? errno : EIO;
      return end;
    }
    end.written += static_cast<size_t>(n);
    skip_written(vectors, first, static_cast<size_t>(n));
  }
  return end;
}

char byte_at(const std::vector<std::string_view>& pieces, size_t offset) {
  for (const std::string_view piece : pieces) {
    if (offset < piece.size()) return piece[offset];
    offset -= piece.size();
  }
  return '\n';
}

}  // namespace

std::optional<std::string> Sink::write(const std::vector<std::string_view>& pieces) {
  const size_t total = bytes_in(pieces);
  if (total == 0) return std::nullopt;
  if (reader_gone_) {
    dropped_ += total;
    return std::nullopt;
  }
  if (torn_) {
    const WriteEnd mended = write_pieces(fd_, {"\n"});
    if (mended.error != 0) {
      dropped_ += total;
      return std::nullopt;
    }
    torn_ = false;
  }
  const WriteEnd end = write_pieces(fd_, pieces);
  if (end.written > 0) last_byte_ = byte_at(pieces, end.written - 1);
  if (end.error == 0) return std::nullopt;
  dropped_ += total - end.written;
  torn_ = last_byte_ != '\n';
  return failed(end.error);
}

std::optional<std::string> Sink::failed(int error) {
  reader_gone_ = error == EPIPE;
  if (said_ || reader_gone_) return std::nullopt;
  said_ = true;
  const bool full = error == ENOSPC || error == EDQUOT;
  return fmt::format(
      "muster: cannot write {}: {}; what the workers print there is dropped, the workers "
      "continue{}",
      name_, std::strerror(error), full ? "; free some space to resume" : "");
}

std::optional<std::string> Sink::dropped_line() const {
  if (dropped_ == 0 || reader_gone_) return std::nullopt;
  return fmt::format("muster: {} bytes of output to {} were dropped", dropped_, name_);
}

}  // namespace muster
