#include "worker_lib/backends/cpu/shm_copy.h"

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace muster::worker {
namespace {

#if defined(__SSE2__)

constexpr size_t kLine = 64;

// Whole lines only, so that the processor never has to read one first.
void stream_lines(std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + i);
    auto* target = reinterpret_cast<__m128i*>(to + i);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  _mm_sfence();  // Such stores are not ordered with those that tell of them.
}

void stream(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t misaligned = reinterpret_cast<uintptr_t>(to) % kLine;
  const size_t head = misaligned == 0 ? 0 : kLine - misaligned;
  if (bytes < head + kLine) {
    std::memcpy(to, from, bytes);
    return;
  }
  const size_t body = (bytes - head) / kLine * kLine;
  std::memcpy(to, from, head);
  stream_lines(to + head, from + head, body);
  std::memcpy(to + head + body, from + head + body, bytes - head - body);
}

#endif

}  // namespace

void copy_result(std::byte* to, const std::byte* from, size_t bytes, size_t whole) {
  if (bytes == 0) return;
#if defined(__SSE2__)
  if (whole >= kStreamedFrom) return stream(to, from, bytes);
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace muster::worker
