#include "rendezvous/membership/random_ids.h"

#include <cerrno>

#include <sys/random.h>

#include "rendezvous/base/error.h"

namespace muster {
namespace {

void fill_randomly(void* data, size_t size) {
  // getrandom(2) returns up to 256 bytes completely once the kernel's pool is ready.
  ssize_t n = 0;
  do {
    n = getrandom(data, size, 0);
  } while (n < 0 && errno == EINTR);
  CHECK(n == static_cast<ssize_t>(size));
}

}  // namespace

uint64_t random_u64() {
  uint64_t value = 0;
  while (value == 0)
    fill_randomly(&value, sizeof value);
  return value;
}

membership::Nonce random_nonce() {
  membership::Nonce nonce{};
  fill_randomly(nonce.data(), nonce.size());
  return nonce;
}

membership::AgentId random_agent_id() {
  return {random_u64(), random_u64()};
}

}  // namespace muster
