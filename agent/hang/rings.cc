#include "agent/hang/rings.h"

#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "rendezvous/base/random.h"

namespace muster {

// Grows the kernel's descriptor table, which has room for 64 at first. That is immediate with one
// thread, but with several waits for an RCU grace period, which held up the first worker by 10 ms
// (expand_fdtable() in Linux's fs/file.c).
Rings::Rings(bool wanted, std::function<void(const std::string&)> say)
    : wanted_(wanted), say_(std::move(say)) {
  if (wanted_) UniqueFd(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, ring::kLowestRecordFd));
}

void Rings::begin_attempt(int workers) {
  readers_.clear();
  readers_.resize(static_cast<size_t>(workers));
}

std::optional<ring::RecordFd> Rings::make(int local_rank) {
  if (!wanted_) return std::nullopt;
  const auto nonce = random_value<uint64_t>();
  Result<UniqueFd> fd = ring::make_ring(nonce);
  const auto record_fd =
      fd.map([&](const UniqueFd& made) { return ring::RecordFd{made.get(), nonce}; });
  Result<RingReader> reader = record_fd.and_then(RingReader::open);
  if (!reader) {
    if (!std::exchange(said_, true))
      say_("calls are not recorded, so a hang is not explained: " + reader.error().message);
    return std::nullopt;
  }
  if (warned_) reader->warn();
  fd_ = std::move(*fd);
  readers_[static_cast<size_t>(local_rank)] = std::move(*reader);
  return *record_fd;
}

void Rings::warn() {
  warned_ = true;
  for (const std::optional<RingReader>& reader : readers_) {
    if (reader) reader->warn();
  }
}

const RingReader* Rings::reader(int local_rank) const {
  const auto index = static_cast<size_t>(local_rank);
  return index < readers_.size() && readers_[index] ? &*readers_[index] : nullptr;
}

}  // namespace muster
