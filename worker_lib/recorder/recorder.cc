#include "worker_lib/recorder/recorder.h"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "rendezvous/base/contract.h"
#include "rendezvous/ring/record_fd.h"
#include "worker_lib/fork_guard.h"

namespace muster::worker {
namespace {

std::atomic<Recorder*> of_this_process = nullptr;

// Returns true if another process of this worker owns the ring, and so records for the worker.
bool is_of_another_process(std::string_view record_fd) {
  std::string why;
  const std::optional<ring::RecordFd> named = ring::parse_record_fd(record_fd);
  ring::Ring* const ring = named ? ring::map_ring(*named, false, why) : nullptr;
  if (ring == nullptr) return false;
  const uint64_t owner = ring->head.owner.load() & ~ring::kAttaching;
  ring::unmap_ring(ring);
  return owner != 0 && owner != static_cast<uint64_t>(getpid());
}

}  // namespace

Recorder::Recorder(std::unique_ptr<ring::RingWriter> writer) : writer_(std::move(writer)) {}

void Recorder::begin_world(int size, int rank) {
  const std::lock_guard lock(mutex_);
  if (world_) world_->become(ring::GroupState::closed);
  ++worlds_;
  const std::string id = unique(kWorldGroup);
  const std::string ranks = size == 1 ? "0" : fmt::format("0-{}", size - 1);
  world_ = LaneRecorder(
      writer_.get(),
      writer_->open_group(
          {.id = id, .name = kWorldGroup, .ranks = ranks, .size = size, .own_rank = rank}));
}

void Recorder::end_world(std::string_view why) {
  const std::lock_guard lock(mutex_);
  if (!world_) return;
  world_->note_failure(why);
  world_->become(ring::GroupState::failed);
}

LaneRecorder Recorder::open(const ring::GroupFacts& facts, std::string_view part) {
  const std::lock_guard lock(mutex_);
  if (world_ && facts.id == kWorldGroup && part.empty())
    return *std::exchange(world_, std::nullopt);
  const std::string id = unique(facts.id).append(part);
  ring::GroupFacts unambiguous = facts;
  unambiguous.id = id;
  return {writer_.get(), writer_->open_group(unambiguous)};
}

std::string Recorder::unique(std::string_view id) const {
  return worlds_ < 2 ? std::string(id) : fmt::format("{}@{}", id, worlds_);
}

void Recorder::enter_section(std::string_view name) {
  const std::lock_guard lock(mutex_);
  writer_->enter_section(name);
}

void Recorder::leave_section() {
  const std::lock_guard lock(mutex_);
  writer_->leave_section();
}

Recorder* process_recorder() noexcept {
  return in_forked_child() ? nullptr : of_this_process.load(std::memory_order_acquire);
}

Recorder* attach_process_recorder(const std::optional<std::string>& record_fd, int rank) {
  static bool said = false;
  if (Recorder* const made = process_recorder()) return made;
  if (!record_fd) return nullptr;
  std::string why;
  auto writer = ring::RingWriter::attach(*record_fd, ring::Source::worker_lib, why);
  if (writer != nullptr) {
    of_this_process = new Recorder(std::move(writer));
  } else if (!is_of_another_process(*record_fd) && !std::exchange(said, true)) {
    std::fprintf(stderr,
                 "muster: rank %d records no calls, so a hang is not explained: %s (see %s)\n",
                 rank, why.c_str(), env::kRecordFd.data());
  }
  return process_recorder();
}

}  // namespace muster::worker
