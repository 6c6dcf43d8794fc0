// Tells a process from its forked children: a word that is 1 in the process that made it and 0 in
// children forked later, without a call at the fork that a library could get wrong. The kernel
// wipes the page (MADV_WIPEONFORK, madvise(2), Linux 4.14); if it refuses, a fork handler does. Any
// thread may read it.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace muster::ring {

class ForkMark {
 public:
  enum class Means : uint8_t { kernel, handler };
  // Returns nullopt without memory. The handler wipes only the latest mark made with it.
  static std::optional<ForkMark> make(Means means = Means::kernel);
  ForkMark(ForkMark&& other) noexcept;
  ForkMark& operator=(ForkMark&&) = delete;
  ~ForkMark();

  // True in the process that made the mark. One load.
  bool is_here() const { return word_->load(std::memory_order_relaxed) != 0; }

 private:
  explicit ForkMark(std::atomic<uint64_t>* word) : word_(word) {}

  std::atomic<uint64_t>* word_;  // Alone on a private page.
};

}  // namespace muster::ring
