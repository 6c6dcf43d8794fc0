// The copy between memory of which the library chose only one side, or neither. glibc's memcpy()
// copies by `rep movsb` from 2 KiB on, which AMD's processors since Zen 3 do at a twentieth of the
// speed if the target lies 1 to 15 bytes above the source modulo 4,096, and at half of it up to 31
// (glibc bug 30994); and what malloc() returns from 128 KiB on begins at 16 of a page. There a loop
// copies; elsewhere memcpy() takes 0.6 times as long at 4 KiB, and as long from 64 KiB on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace muster::worker {

#if defined(__SSE2__)
// Copies 64 bytes; `kStreams`: past the caches, to a whole line.
template <bool kStreams = false>
void copy_line(std::byte* to, const std::byte* from) {
  const auto* source = reinterpret_cast<const __m128i*>(from);
  auto* target = reinterpret_cast<__m128i*>(to);
  const auto put = [target](int at, __m128i part) {
    kStreams ? _mm_stream_si128(target + at, part) : _mm_storeu_si128(target + at, part);
  };
  const __m128i a = _mm_loadu_si128(source);
  const __m128i b = _mm_loadu_si128(source + 1);
  const __m128i c = _mm_loadu_si128(source + 2);
  const __m128i d = _mm_loadu_si128(source + 3);
  put(0, a);
  put(1, b);
  put(2, c);
  put(3, d);
}
#endif

// As memcpy(); the pointers may be null if `bytes` is 0. REQUIRES: no overlap.
inline void copy_bytes(void* to, const void* from, size_t bytes) {
#if defined(__SSE2__)
  constexpr size_t kLineBytes = 64;
  const size_t above = (reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from)) % 4096;
  if (bytes >= 2048 && above > 0 && above < 32) {
    auto* target = static_cast<std::byte*>(to);
    const auto* source = static_cast<const std::byte*>(from);
    const size_t last = bytes - kLineBytes;
    copy_line(target, source);
    // From here on whole lines of the target; the ends overlap with them.
    size_t at = kLineBytes - reinterpret_cast<uintptr_t>(target) % kLineBytes;
    for (; at < last; at += kLineBytes)
      copy_line(target + at, source + at);
    return copy_line(target + last, source + last);
  }
#endif
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace muster::worker
