#include "rendezvous/ring/ring_owner.h"

#include <cerrno>
#include <climits>
#include <csignal>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rendezvous/base/process_stat.h"
#include "rendezvous/ring/record_fd.h"
#include "rendezvous/ring/ring_clock.h"

namespace muster::ring {
namespace {

uint64_t own_pid() {
  return static_cast<uint64_t>(getpid());
}

// An ended process may still be a zombie, and its pid may have been reused.
bool owner_has_ended(uint64_t owner, uint64_t started) {
  const auto pid = static_cast<pid_t>(owner & ~kAttaching);
  if (pid <= 0 || (kill(pid, 0) != 0 && errno == ESRCH)) return true;
  const std::vector<std::string> fields = stat_fields(pid);
  if (fields.empty()) return false;  // Hidden from us (hidepid of proc(5)).
  if (is_over(fields)) return true;
  return (owner & kAttaching) == 0 && started != 0 && start_ticks(fields) != started;
}

bool take_owner(Head& head, std::string& why) {
  uint64_t owner = head.owner.load(kAcquire);
  const bool is_free = owner == 0 || owner_has_ended(owner, head.owner_started.load(kRelaxed));
  if (is_free && head.owner.compare_exchange_strong(owner, own_pid() | kAttaching,
                                                    std::memory_order_acq_rel)) {
    return true;
  }
  owner &= ~kAttaching;
  why = owner == own_pid()
            ? "this process records its calls already, by another library or before an exec()"
            : fmt::format("process {} records the calls of this rank, and still runs", owner);
  return false;
}

void clear(Word* first, const Word* last) {
  for (Word* word = first; word != last; ++word)
    word->store(0, kRelaxed);
}

// Clears all but the head and the report, which is not the owner's. REQUIRES: a new generation.
void clear_tables(Ring& ring) {
  Word* const report = reinterpret_cast<Word*>(&ring.notes.report);
  clear(reinterpret_cast<Word*>(&ring.notes), report);
  clear(report + sizeof(Report) / sizeof(Word), reinterpret_cast<Word*>(&ring + 1));
}

void begin_generation(Ring& ring) {
  const uint64_t generation = ring.head.generation.load(kRelaxed);
  ring.head.generation.store(generation + 1, kRelaxed);
  release_fence();              // Readers of what follows see the new generation.
  if (generation == 0) return;  // A new ring is zero; clearing it would allocate all pages.
  clear_tables(ring);
  for (Word* const word : {&ring.head.next_record, &ring.head.dropped, &ring.head.without_group,
                           &ring.head.looked_ticks})
    word->store(0, kRelaxed);
}

}  // namespace

void wake_readers(Head& head) {
  head.futex.fetch_add(1);
  // Not FUTEX_PRIVATE_FLAG: the waiters are in other processes.
  syscall(SYS_futex, &head.futex, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool take_ring(Ring& ring, Source source, bool tsc, std::string& why) {
  Head& head = ring.head;
  if (!take_owner(head, why)) return false;
  begin_generation(ring);
  const ClockPair now = clock_pair(tsc);
  head.owner_started.store(start_ticks(stat_fields(getpid())), kRelaxed);
  head.source.store(static_cast<uint64_t>(source), kRelaxed);
  head.attached_ticks.store(now.ticks, kRelaxed);
  head.attached_ns.store(now.ns, kRelaxed);
  head.ticks_are_tsc.store(tsc ? 1 : 0, kRelaxed);
  head.owner.store(own_pid(), kRelease);
  head.attached.store(head.generation.load(kRelaxed), kRelease);
  wake_readers(head);
  return true;
}

bool share_ring(const Ring& ring, Source source, bool& tsc) {
  const Head& head = ring.head;
  if (head.owner.load(kAcquire) != own_pid()) return false;
  // The owner may be an earlier process with our pid.
  if (head.owner_started.load(kRelaxed) != start_ticks(stat_fields(getpid()))) return false;
  const uint64_t plugin = static_cast<uint64_t>(Source::nccl_plugin);
  const uint64_t hook = static_cast<uint64_t>(Source::python_hook);
  const uint64_t beside = source == Source::nccl_plugin ? hook : plugin;
  const bool is_beside = source == Source::nccl_plugin || source == Source::python_hook;
  if (!is_beside || head.source.load(kRelaxed) != beside) return false;
  tsc = head.ticks_are_tsc.load(kRelaxed) != 0;
  return true;
}

bool has_owner(std::string_view record_fd) {
  std::string why;
  const std::optional<RecordFd> named = parse_record_fd(record_fd);
  Ring* const ring = named ? map_ring(*named, /*writable=*/false, why) : nullptr;
  if (ring == nullptr) return false;
  const uint64_t owner = ring->head.owner.load(kAcquire);
  const bool is_owned =
      owner != 0 && !owner_has_ended(owner, ring->head.owner_started.load(kRelaxed));
  unmap_ring(ring);
  return is_owned;
}

void leave_ring(Ring& ring) {
  uint64_t owner = own_pid();
  ring.head.owner.compare_exchange_strong(owner, 0, std::memory_order_acq_rel);
}

}  // namespace muster::ring
