#include "worker_lib/backends/cpu/shm_copy.h"

#include <cstdint>

#include "worker_lib/copy_bytes.h"

namespace muster::worker {
namespace {

#if defined(__SSE2__)

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
// Pages copied in parallel, a line of each in turn: processors prefetch only within a page, so one
// page at a time stalls on each page's address translation and first lines. With small pages four
// are a fifth faster than one; eight are no better.
constexpr size_t kPages = 4;
constexpr size_t kAhead = 512;

// Writes whole lines only, so that the processor never has to read a line first.
void stream_lines(std::byte* to, const std::byte* from, size_t bytes) {
  size_t start = 0;
  for (; start + kPages * kPage + kAhead <= bytes; start += kPages * kPage) {
    for (size_t line = start; line < start + kPage; line += kLine) {
      for (size_t page = 0; page < kPages; ++page) {
        const size_t i = line + page * kPage;
        _mm_prefetch(reinterpret_cast<const char*>(from) + i + kAhead, _MM_HINT_T0);
        copy_line<true>(to + i, from + i);
      }
    }
  }
  for (; start < bytes; start += kLine)
    copy_line<true>(to + start, from + start);
  _mm_sfence();  // Orders these stores before the ones that publish them.
}

void stream(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t misaligned = reinterpret_cast<uintptr_t>(to) % kLine;
  const size_t head = misaligned == 0 ? 0 : kLine - misaligned;
  if (bytes < head + kLine) {
    copy_bytes(to, from, bytes);
    return;
  }
  const size_t body = (bytes - head) / kLine * kLine;
  copy_bytes(to, from, head);
  stream_lines(to + head, from + head, body);
  copy_bytes(to + head + body, from + head + body, bytes - head - body);
}

#endif

}  // namespace

void copy_result(std::byte* to, const std::byte* from, size_t bytes,
                 [[maybe_unused]] size_t whole) {
#if defined(__SSE2__)
  if (whole >= kStreamedFrom) return stream(to, from, bytes);
#endif
  copy_bytes(to, from, bytes);
}

}  // namespace muster::worker
