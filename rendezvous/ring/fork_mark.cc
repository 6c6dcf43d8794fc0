#include "rendezvous/ring/fork_mark.h"

#include <mutex>
#include <new>
#include <utility>

#include <pthread.h>
#include <sys/mman.h>

namespace muster::ring {
namespace {

std::atomic<std::atomic<uint64_t>*> word_to_wipe = nullptr;

void wipe_in_child() {
  if (auto* const word = word_to_wipe.load()) word->store(0);
}

bool wipe_by_handler(std::atomic<uint64_t>* word) {
  static std::once_flag once;
  static bool is_installed = false;
  std::call_once(once, [] { is_installed = pthread_atfork(nullptr, nullptr, wipe_in_child) == 0; });
  word_to_wipe = word;
  return is_installed;
}

}  // namespace

std::optional<ForkMark> ForkMark::make(Means means) {
  void* const page =
      mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return std::nullopt;
  ForkMark made(new (page) std::atomic<uint64_t>(1));
  if (means == Means::kernel && madvise(page, sizeof(uint64_t), MADV_WIPEONFORK) == 0) return made;
  if (wipe_by_handler(made.word_)) return made;
  return std::nullopt;
}

ForkMark::ForkMark(ForkMark&& other) noexcept : word_(std::exchange(other.word_, nullptr)) {}

ForkMark::~ForkMark() {
  if (word_ == nullptr) return;
  std::atomic<uint64_t>* known = word_;
  word_to_wipe.compare_exchange_strong(known, nullptr);
  munmap(word_, sizeof(uint64_t));
}

}  // namespace muster::ring
