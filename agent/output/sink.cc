#include "agent/output/sink.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

struct WriteEnd {
  size_t written = 0;
  char last_byte = '\0';  // Valid if any were written.
  int error = 0;
};

// Removes the first `bytes` (at least one) of what is left to write; returns the last of them.
char skip_written(std::span<iovec>& left, size_t bytes) {
  for (; bytes > left.front().iov_len; left = left.subspan(1))
    bytes -= left.front().iov_len;
  char* const rest = static_cast<char*>(left.front().iov_base) + bytes;
  left.front() = {rest, left.front().iov_len - bytes};
  if (left.front().iov_len == 0) left = left.subspan(1);
  return rest[-1];
}

// Another process may share the descriptor and have made it non-blocking.
void wait_writable(int fd) {
  pollfd entry{fd, POLLOUT, 0};
  ::poll(&entry, 1, -1);
}

WriteEnd write_pieces(int fd, std::span<const std::string_view> pieces) {
  constexpr size_t kVectorsMax = 512;  // Below IOV_MAX.
  std::vector<iovec> vectors;
  vectors.reserve(pieces.size());
  for (const std::string_view piece : pieces) {
    if (!piece.empty()) vectors.push_back({const_cast<char*>(piece.data()), piece.size()});
  }
  WriteEnd end;
  for (std::span<iovec> left = vectors; !left.empty();) {
    const auto count = static_cast<int>(std::min(left.size(), kVectorsMax));
    const ssize_t n = ::writev(fd, left.data(), count);
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
    end.last_byte = skip_written(left, static_cast<size_t>(n));
  }
  return end;
}

}  // namespace

std::optional<std::string> Sink::write(std::span<const std::string_view> pieces) {
  size_t total = 0;
  for (const std::string_view piece : pieces)
    total += piece.size();
  if (total == 0) return std::nullopt;
  if (torn_ && !reader_gone_) {
    constexpr std::string_view kNewline = "\n";
    torn_ = write_pieces(fd_, {&kNewline, 1}).error != 0;
  }
  if (reader_gone_ || torn_) {
    dropped_ += total;
    return std::nullopt;
  }
  const WriteEnd end = write_pieces(fd_, pieces);
  if (end.written > 0) last_byte_ = end.last_byte;
  if (end.error == 0) return std::nullopt;
  dropped_ += total - end.written;
  torn_ = last_byte_ != '\n';
  if (torn_ && !content_.empty()) torn_ = !take_back_torn_line(pieces, end.written);
  return failed(end.error);
}

// Truncates the file to whole lines. The torn line is in the first `written` bytes of `pieces`.
bool Sink::take_back_torn_line(std::span<const std::string_view> pieces, size_t written) {
  size_t torn = 0;
  for (std::string_view piece : pieces) {
    piece = piece.substr(0, written);
    written -= piece.size();
    const size_t newline = piece.rfind('\n');
    torn = newline == std::string_view::npos ? torn + piece.size() : piece.size() - newline - 1;
  }
  const off_t end = ::lseek(fd_, 0, SEEK_CUR) - static_cast<off_t>(torn);
  return end >= 0 && ::ftruncate(fd_, end) == 0 && ::lseek(fd_, end, SEEK_SET) == end;
}

std::optional<std::string> Sink::failed(int error) {
  reader_gone_ = error == EPIPE;
  if (said_ || reader_gone_) return std::nullopt;
  said_ = true;
  const bool full = error == ENOSPC || error == EDQUOT;
  return fmt::format("muster: cannot write {}: {}; {} is dropped, the workers continue{}", name_,
                     std::strerror(error),
                     content_.empty() ? "what the workers print there" : content_,
                     full ? "; free some space to resume" : "");
}

std::optional<std::string> Sink::dropped_line() const {
  if (dropped_ == 0 || reader_gone_) return std::nullopt;
  return fmt::format("muster: dropped {} of output to {}", counted(dropped_, "byte"), name_);
}

}  // namespace muster
