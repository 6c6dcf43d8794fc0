#include "worker_lib/fork_guard.h"

#include <array>
#include <cstdint>
#include <mutex>

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "rendezvous/base/error.h"
#include "rendezvous/store/store_sockets.h"

namespace muster::worker {

namespace fork_state {
std::atomic<bool> is_child = false;
}

namespace {

// One bit per descriptor. Atomic: any thread may fork, and the child must be async-signal-safe.
constexpr int kSeveredMax = 65536;
std::array<std::atomic<uint64_t>, kSeveredMax / 64> severed_descriptors;
std::atomic<int> nothing_to_read = -1;

void sever_word(size_t word, int null) {
  for (uint64_t bits = severed_descriptors[word].load(); bits != 0; bits &= bits - 1)
    dup3(null, static_cast<int>(word * 64) + __builtin_ctzll(bits), O_CLOEXEC);
}

void mark_child() {
  fork_state::is_child.store(true);
  const int null = nothing_to_read.load();
  if (null < 0) return;
  for (size_t word = 0; word < severed_descriptors.size(); ++word) {
    if (severed_descriptors[word].load(std::memory_order_relaxed) != 0) sever_word(word, null);
  }
}

void install_fork_handler() {
  static constexpr StoreSocketObserver kSever{sever_in_forked_child, forget_severed};
  observe_store_sockets(kSever);
  nothing_to_read = open("/dev/null", O_RDWR | O_CLOEXEC);
  CHECK(pthread_atfork(nullptr, nullptr, mark_child) == 0);
}

uint64_t bit_of(int fd) {
  return uint64_t{1} << (fd % 64);
}

}  // namespace

void arm_fork_guard() {
  static std::once_flag once;
  std::call_once(once, install_fork_handler);
}

Failure forked_failure() {
  return {ErrorCode::forked,
          "this is a child of fork(): the library's threads and connections are its parent's; use "
          "exec, or spawn() (muster/spawn.h), to start ranks"};
}

void sever_in_forked_child(int fd) {
  if (fd < 0 || fd >= kSeveredMax) return;
  severed_descriptors[static_cast<size_t>(fd) / 64].fetch_or(bit_of(fd));
}

void forget_severed(int fd) {
  if (fd < 0 || fd >= kSeveredMax) return;
  severed_descriptors[static_cast<size_t>(fd) / 64].fetch_and(~bit_of(fd));
}

}  // namespace muster::worker
