// Interleaves a writer's stores with a reader's loads in every way that splits the stores once:
// some precede the reader, the others follow one of its loads. For that the reader's pages are
// protected, so that each load faults, is let through, and traps (the trap flag: x86-64 only).
#pragma once

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include <sys/mman.h>
#include <ucontext.h>

#include "rendezvous/base/error.h"

namespace muster {

// Whole pages, mapped for reading.
struct ReadPages {
  std::byte* begin = nullptr;
  size_t bytes = 0;
};

#if defined(__x86_64__)
inline constexpr bool kHasReadSteps = true;

class ReadSteps {
 public:
  ReadSteps(const ReadPages& pages, size_t loads, const std::function<void()>& act)
      : pages_(pages), left_(loads), act_(act) {
    current_ = this;
    struct sigaction action{};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = on_fault;
    sigaction(SIGSEGV, &action, &fault_before_);
    action.sa_sigaction = on_trap;
    sigaction(SIGTRAP, &action, &trap_before_);
    step();
  }
  ~ReadSteps() {
    protect(PROT_READ);
    sigaction(SIGSEGV, &fault_before_, nullptr);
    sigaction(SIGTRAP, &trap_before_, nullptr);
  }
  ReadSteps(const ReadSteps&) = delete;
  ReadSteps& operator=(const ReadSteps&) = delete;

  bool has_acted() const { return has_acted_; }

 private:
  static constexpr greg_t kTrapFlag = 0x100;

  static void on_fault(int, siginfo_t* info, void* context) {
    auto* const at = static_cast<std::byte*>(info->si_addr);
    if (at < current_->pages_.begin || at >= current_->pages_.begin + current_->pages_.bytes) {
      std::signal(SIGSEGV, SIG_DFL);  // A foreign fault, which will recur.
      return;
    }
    current_->protect(PROT_READ);
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] |= kTrapFlag;
  }
  static void on_trap(int, siginfo_t*, void* context) {
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
    --current_->left_;
    current_->step();
  }

  void step() {
    if (left_ > 0) return protect(PROT_NONE);
    act_();
    has_acted_ = true;
  }
  void protect(int protection) const {
    CHECK(mprotect(pages_.begin, pages_.bytes, protection) == 0);
  }

  static inline ReadSteps* current_ = nullptr;

  const ReadPages pages_;
  size_t left_;
  const std::function<void()> act_;
  bool has_acted_ = false;
  struct sigaction fault_before_{};
  struct sigaction trap_before_{};
};
#else
inline constexpr bool kHasReadSteps = false;

class ReadSteps {
 public:
  ReadSteps(const ReadPages&, size_t, const std::function<void()>&) {}
  bool has_acted() const { return false; }
};
#endif

struct StoredWord {
  std::atomic<uint64_t>* word = nullptr;
  uint64_t value = 0;
};

inline void store_all(std::span<const StoredWord> stores) {
  for (const StoredWord& store : stores)
    *store.word = store.value;
}

// `before` is stored anew for each look.
inline void interleave(const ReadPages& pages, std::span<const StoredWord> before,
                       std::span<const StoredWord> stores, const std::function<void()>& look) {
  for (size_t done = 0; done < stores.size(); ++done) {
    bool has_acted = true;
    for (size_t loads = 0; has_acted; ++loads) {
      store_all(before);
      store_all(stores.first(done));
      const ReadSteps steps(pages, loads, [&] { store_all(stores.subspan(done)); });
      look();
      has_acted = steps.has_acted();
    }
  }
}

}  // namespace muster
