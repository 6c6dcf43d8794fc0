#include "worker_lib/backends/cpu/side_copies.h"

#include <algorithm>
#include <utility>

#include "worker_lib/backends/cpu/shm_copy.h"
#include "worker_lib/quiet_thread.h"

namespace muster::worker {
namespace {

constexpr size_t kPieceBytes = size_t{128} * 1024;
// At this size a copy takes about a millisecond; waking a thread takes a twentieth of that.
constexpr size_t kHelpedFrom = size_t{4} << 20;

}  // namespace

SideCopies::~SideCopies() {
  if (!helper_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wanted_.notify_one();
  helper_.join();
}

void SideCopies::add(void* to, const void* from, size_t bytes) {
  if (to == from || bytes == 0) return;
  const std::lock_guard lock(mutex_);
  copies_.push_back(
      {static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, bytes});
}

void SideCopies::begin(bool may_have_help) {
  if (!may_have_help || has_no_helper_) return;
  {
    const std::lock_guard lock(mutex_);
    size_t bytes = 0;
    for (const Part& copy : copies_)
      bytes += copy.bytes;
    if (bytes < kHelpedFrom) return;
    begun_ = true;
  }
  if (helper_.joinable()) return wanted_.notify_one();
  Outcome<std::thread> made = start_quiet_thread([this] { help(); });
  has_no_helper_ = !made;
  if (made) helper_ = std::move(*made);
}

bool SideCopies::copy_some() {
  std::optional<Part> piece;
  {
    const std::lock_guard lock(mutex_);
    piece = take();
  }
  if (!piece) return false;
  copy_result(piece->to, piece->from, piece->bytes, piece->whole);
  return true;
}

void SideCopies::finish() {
  while (copy_some()) {
  }
  drop();
}

void SideCopies::drop() {
  std::unique_lock lock(mutex_);
  copies_.clear();
  begun_ = false;
  left_.wait(lock, [this] { return !in_hand_; });
}

// REQUIRES: the mutex is held.
std::optional<SideCopies::Part> SideCopies::take() {
  if (copies_.empty()) return std::nullopt;
  Part& copy = copies_.back();
  const size_t bytes = std::min(copy.bytes, kPieceBytes);
  const Part piece{copy.to, copy.from, bytes, copy.whole};
  copy.to += bytes;
  copy.from += bytes;
  copy.bytes -= bytes;
  if (copy.bytes == 0) copies_.pop_back();
  return piece;
}

void SideCopies::help() {
  std::unique_lock lock(mutex_);
  while (true) {
    wanted_.wait(lock, [this] { return ending_ || (begun_ && !copies_.empty()); });
    if (ending_) return;
    const std::optional<Part> piece = take();
    in_hand_ = true;
    lock.unlock();
    copy_result(piece->to, piece->from, piece->bytes, piece->whole);
    lock.lock();
    in_hand_ = false;
    if (copies_.empty()) left_.notify_one();
  }
}

}  // namespace muster::worker
