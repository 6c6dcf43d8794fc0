#include "agent/hang/attach_wait.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <system_error>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rendezvous/base/quiet_thread.h"

namespace muster::hang {
namespace {

futex_waitv waiter_for(const std::atomic<uint32_t>* word, uint32_t flags) {
  futex_waitv waiter{};
  waiter.val = 0;
  waiter.uaddr = reinterpret_cast<uintptr_t>(word);
  waiter.flags = FUTEX_32 | flags;
  return waiter;
}

}  // namespace

AttachWait::AttachWait(std::vector<const std::atomic<uint32_t>*> words,
                       std::function<void()> attached)
    : words_(words.begin(), words.begin() + static_cast<ptrdiff_t>(std::min<size_t>(
                                                words.size(), FUTEX_WAITV_MAX - 1))),
      attached_(std::move(attached)) {
  try {
    thread_ = quiet_thread([this] { wait(); });
  } catch (const std::system_error&) {
    attached_();  // No thread could be started: the loop polls from now on.
  }
}

AttachWait::~AttachWait() {
  ending_ = 1;
  syscall(SYS_futex, &ending_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  if (thread_.joinable()) thread_.join();
}

bool AttachWait::any_attached() const {
  return std::ranges::any_of(words_, [](const auto* word) { return word->load() != 0; });
}

void AttachWait::wait() {
  std::vector<futex_waitv> waiters{waiter_for(&ending_, FUTEX_PRIVATE_FLAG)};
  for (const std::atomic<uint32_t>* word : words_)
    waiters.push_back(waiter_for(word, 0));
  // Checks again after wake-ups, EAGAIN (a word has changed) and EINTR; polls on other errors.
  while (ending_ == 0 && !any_attached()) {
    if (syscall(SYS_futex_waitv, waiters.data(), waiters.size(), 0, nullptr, CLOCK_MONOTONIC) >= 0)
      continue;
    if (errno == EAGAIN || errno == EINTR) continue;
    const timespec pause{0, 500'000'000};
    syscall(SYS_futex, &ending_, FUTEX_WAIT_PRIVATE, 0, &pause, nullptr, 0);
  }
  if (ending_ == 0) attached_();
}

}  // namespace muster::hang
