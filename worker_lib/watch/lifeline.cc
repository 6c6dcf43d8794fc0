#include "worker_lib/watch/lifeline.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <ctime>
#include <thread>

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rendezvous/ring/memory_file.h"
#include "worker_lib/quiet_thread.h"

// Older headers lack these; the numbers are the same on all machines.
#if !defined(SYS_futex_waitv)
#define SYS_futex_waitv 449
#endif

namespace muster::worker {
namespace {

// As struct futex_waitv of Linux 5.16.
struct WaitedWord {
  uint64_t value = 0;
  uint64_t address = 0;
  uint32_t flags = 2;  // FUTEX_32: 32 bits, shared between processes.
  uint32_t reserved = 0;
};

constexpr size_t kWordsMax = 128;  // FUTEX_WAITV_MAX
// Nanoseconds between looks: although no wake-up came, and where none can come.
constexpr long kLookAgain = 50'000'000;
constexpr long kPoll = 20'000'000;
constexpr long kSecond = 1'000'000'000;

void wake_waiters(uint32_t* word) {
  ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// False before Linux 5.16, and in sandboxes that refuse calls which they do not know.
bool has_waitv() {
  static const bool has =
      ::syscall(SYS_futex_waitv, nullptr, 0, 0, nullptr, 0) != 0 && errno == EINVAL;
  return has;
}

// Waits until one of the words may have changed, of which the last is the waiter's own bell.
void wait_for_any(const std::vector<uint32_t*>& words, const std::vector<uint32_t>& values) {
  if (has_waitv()) {
    std::vector<WaitedWord> waited(words.size());
    for (size_t i = 0; i < words.size(); ++i) {
      waited[i].value = values[i];
      waited[i].address = reinterpret_cast<uintptr_t>(words[i]);
    }
    // The kernel wakes one waiter, perhaps of a process that is stopped or dying itself.
    timespec until{};
    ::clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += kLookAgain;
    until.tv_sec += until.tv_nsec / kSecond;
    until.tv_nsec %= kSecond;
    if (::syscall(SYS_futex_waitv, waited.data(), waited.size(), 0, &until, CLOCK_MONOTONIC) >= 0 ||
        errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT)
      return;
  }
  const timespec most{.tv_sec = 0, .tv_nsec = kPoll};
  ::syscall(SYS_futex, words.back(), FUTEX_WAIT, values.back(), &most, nullptr, 0);
}

pthread_mutex_t* map(int fd) {
  void* const at =
      ::mmap(nullptr, sizeof(pthread_mutex_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<pthread_mutex_t*>(at);
}

}  // namespace

// ---- one lifeline

std::optional<Lifeline> Lifeline::make() {
  Result<UniqueFd> file = ring::make_memory_file("muster-lifeline", sizeof(pthread_mutex_t));
  pthread_mutex_t* const mutex = file ? map(file->get()) : nullptr;
  if (mutex == nullptr) return std::nullopt;
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(mutex, &kind);
  pthread_mutexattr_destroy(&kind);
  return Lifeline(std::move(*file), mutex);
}

std::optional<Lifeline> Lifeline::open(const UniqueFd& file) {
  struct stat info{};
  const bool is_whole =
      ::fstat(file.get(), &info) == 0 && info.st_size == sizeof(pthread_mutex_t) &&
      (::fcntl(file.get(), F_GET_SEALS) & ring::kMemoryFileSeals) == ring::kMemoryFileSeals;
  pthread_mutex_t* const mutex = is_whole ? map(file.get()) : nullptr;
  if (mutex == nullptr) return std::nullopt;
  return Lifeline(UniqueFd(), mutex);
}

Lifeline::~Lifeline() {
  if (mutex_ != nullptr) ::munmap(mutex_, sizeof(pthread_mutex_t));
}

void Lifeline::hold() {
  pthread_mutex_lock(mutex_);
}

void Lifeline::release() {
  pthread_mutex_unlock(mutex_);
}

// ---- the peers'

struct LifelineWatch::Waiter {
  std::vector<Peer> peers;  // Changed by the thread alone, but for new ones at the end.
  std::vector<uint64_t> removed;
  bool ends = false;
  uint32_t bell = 0;  // Changed and woken for news of these.
  std::thread thread;

  void ring() {
    std::atomic_ref(bell).fetch_add(1);
    wake_waiters(&bell);
  }
};

LifelineWatch::LifelineWatch(std::function<void(uint64_t id)> cut) : cut_(std::move(cut)) {}

LifelineWatch::~LifelineWatch() {
  std::vector<std::unique_ptr<Waiter>> waiters;
  {
    const std::lock_guard lock(mutex_);
    waiters.swap(waiters_);
    for (const auto& waiter : waiters) {
      waiter->ends = true;
      waiter->ring();
    }
  }
  for (const auto& waiter : waiters)
    waiter->thread.join();
}

void LifelineWatch::add(uint64_t id, Lifeline peer) {
  const std::lock_guard lock(mutex_);
  const auto free = std::ranges::find_if(
      waiters_, [](const auto& waiter) { return waiter->peers.size() < kWordsMax - 1; });
  if (free != waiters_.end()) {
    (*free)->peers.push_back({id, std::move(peer)});
    return (*free)->ring();
  }
  auto waiter = std::make_unique<Waiter>();
  waiter->peers.push_back({id, std::move(peer)});
  Outcome<std::thread> thread = start_quiet_thread([this, one = waiter.get()] { wait(*one); });
  if (!thread) return;
  waiter->thread = std::move(*thread);
  waiters_.push_back(std::move(waiter));
}

void LifelineWatch::remove(uint64_t id) {
  const std::lock_guard lock(mutex_);
  for (const auto& waiter : waiters_) {
    waiter->removed.push_back(id);
    waiter->ring();
  }
}

void LifelineWatch::wait(Waiter& waiter) {
  pthread_setname_np(pthread_self(), "muster-lifeline");
  std::vector<uint32_t*> words;
  std::vector<uint32_t> values;
  while (look(waiter, words, values))
    wait_for_any(words, values);
}

// Forgets the peers that are removed or over, and collects what to wait for. False: it is the end.
bool LifelineWatch::look(Waiter& waiter, std::vector<uint32_t*>& words,
                         std::vector<uint32_t>& values) {
  const std::lock_guard lock(mutex_);
  if (waiter.ends) return false;
  words.clear();
  values.clear();
  const auto await = [&](uint32_t* word, uint32_t value) {
    words.push_back(word);
    values.push_back(value);
  };
  const auto is_over = [&](const Peer& peer) {
    if (std::ranges::count(waiter.removed, peer.id) > 0) return true;
    const std::atomic_ref word(*peer.line.word());
    uint32_t value = word.load();
    while ((value & FUTEX_OWNER_DIED) == 0 && (value & FUTEX_TID_MASK) != 0) {
      if ((value & FUTEX_WAITERS) != 0 ||
          word.compare_exchange_weak(value, value | FUTEX_WAITERS)) {
        await(peer.line.word(), value | FUTEX_WAITERS);
        return false;
      }
    }
    wake_waiters(
        peer.line.word());  // The kernel wakes one of them, perhaps one that is dying, too.
    if ((value & FUTEX_OWNER_DIED) != 0) cut_(peer.id);
    return true;
  };
  std::erase_if(waiter.peers, is_over);
  waiter.removed.clear();
  await(&waiter.bell, std::atomic_ref(waiter.bell).load());
  return true;
}

}  // namespace muster::worker
