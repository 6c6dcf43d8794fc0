// Randomness from the kernel for nonces, secrets, ids and seeds, which must be unguessable or
// unique. Machines take a seeded generator instead (prng.h). Any thread.
#pragma once

#include <cerrno>
#include <cstddef>
#include <string>

#include <fcntl.h>
#include <sys/random.h>

#include "rendezvous/base/error.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {

inline void fill_randomly(void* data, size_t size) {
  for (size_t filled = 0; filled < size;) {
    ssize_t got = getrandom(static_cast<char*>(data) + filled, size - filled, 0);
    if (got < 0 && errno != EINTR) {  // A sandbox refuses it.
      const UniqueFd file(open("/dev/urandom", O_RDONLY | O_CLOEXEC));
      got = read(file.get(), static_cast<char*>(data) + filled, size - filled);
    }
    CHECK(got > 0 || errno == EINTR);
    if (got > 0) filled += static_cast<size_t>(got);
  }
}

// REQUIRES: all bit patterns of T are values.
template <typename T>
T random_value() {
  T value{};
  fill_randomly(&value, sizeof value);
  return value;
}

inline std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  fill_randomly(bytes.data(), count);
  return bytes;
}

}  // namespace muster
