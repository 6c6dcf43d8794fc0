#include "worker_lib/backends/cpu/shm_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/error.h"
#include "worker_lib/backends/cpu/memory_file.h"
#include "worker_lib/backends/cpu/shm_progress.h"
#include "worker_lib/backends/cpu/shm_regions.h"
#include "worker_lib/call_word.h"

namespace muster::worker {
namespace {

constexpr size_t kSocketName = 64;

std::byte* bytes_of(void* data) {
  return static_cast<std::byte*>(data);
}

}  // namespace

ShmGroup::ShmGroup(std::shared_ptr<Segment> segment, Members local)
    : segment_(std::move(segment)),
      local_(std::move(local)),
      regions_(std::make_shared<SharedRegions>(local_.size(), local_.me)),
      routes_(static_cast<size_t>(local_.size())),
      inputs_(static_cast<size_t>(local_.size())) {
  CHECK(local_.size() > 1 && segment_->ranks() == local_.size() && local_.me >= 0 &&
        local_.me < local_.size());
}

ShmGroup::~ShmGroup() = default;

ShmCall ShmGroup::begin(const Operation& operation, Deadline deadline) {
  return ShmCall({*segment_, local_, *regions_, patience_, routes_, inputs_, ++sequence_,
                  step_base_, last_staged_},
                 operation, deadline);
}

Outcome<> ShmGroup::end(ShmCall& call, bool good) {
  step_base_ += call.steps;
  if (call.uses_slots) last_staged_ = sequence_;
  if (good) [[likely]] {
    return Done{};
  }
  return tl::unexpected(call.take_failure());
}

Outcome<> ShmGroup::run(const Operation& operation, Deadline deadline) {
  if (segment_->abort_word().load(std::memory_order_relaxed) != 0) {
    return tl::unexpected(*segment_->failure());
  }
  ShmCall call = begin(operation, deadline);
  bool good = false;
  switch (operation.kind) {
    case OpKind::barrier:
      good = call.meet(DataSource::nowhere, 0);
      break;
    case OpKind::reduce:
    case OpKind::all_reduce:
      good = reduce_call(call);
      break;
    default:
      good = exchange(call);
      break;
  }
  return end(call, good);
}

Outcome<> ShmGroup::check(const Operation& operation, Deadline deadline) {
  if (const std::optional<Failure> failure = segment_->failure()) return tl::unexpected(*failure);
  ShmCall call = begin(operation, deadline);
  return end(call, call.meet(DataSource::nowhere, 0));
}

// The line with the higher number, of a rank's two, describes its last call.
std::vector<int> ShmGroup::awaited() const {
  const auto come_to = [&](int rank) {
    return std::max(segment_->call_line(rank, 0).sequence.load(),
                    segment_->call_line(rank, 1).sequence.load());
  };
  const uint64_t mine = come_to(local_.me);
  std::vector<int> missing, others;
  for (int rank = 0; rank < local_.size(); ++rank) {
    if (rank == local_.me) continue;
    others.push_back(rank);
    if (come_to(rank) < mine) missing.push_back(rank);
  }
  return missing.empty() ? others : missing;
}

// Agrees on whether all ranks have mapped the memory; if not, names the first that has not.
Outcome<> ShmGroup::agree(const Outcome<std::byte*>& mapped, Deadline deadline) {
  int32_t first = mapped ? local_.size() : local_.me;
  Operation vote{
      .kind = OpKind::all_reduce, .count = 1, .dtype = DType::int32, .reduce = ReduceOp::min};
  vote.in = vote.out = bytes_of(&first);
  Outcome<> met = run(vote, deadline);
  if (!met || first == local_.size()) return met;
  if (!mapped) return tl::unexpected(mapped.error());
  return failed(ErrorCode::system,
                fmt::format("{} cannot map the shared memory; see its error message",
                            describe(local_[first])),
                {local_[first].rank});
}

// Aborts the segment because this rank's part of the hand-over failed, and returns the segment's
// first failure. Called before the socket is closed, since an end of stream gives no reason.
Failure ShmGroup::end_for_all(Failure failure) {
  if (failure.code == ErrorCode::system) {
    failure.message =
        fmt::format("{} cannot share memory: {}", describe(local_.self()), failure.message);
    failure.ranks = {local_.self().rank};
  }
  segment_->abort(failure);
  return segment_->failure().value_or(failure);
}

// Hands memory that the node's first rank makes to the others.
Outcome<UniqueFd> ShmGroup::hand_round(size_t bytes, Deadline deadline) {
  const Interrupted interrupted = [this] { return segment_->failure(); };
  char name[kSocketName] = {};
  Operation tell{.kind = OpKind::broadcast, .count = sizeof name, .dtype = DType::uint8};
  tell.in = tell.out = bytes_of(name);
  if (local_.me != 0) {
    const Outcome<> told = run(tell, deadline);
    if (!told) return tl::unexpected(told.error());
    if (name[0] == 0) {
      return failed(
          ErrorCode::system,
          fmt::format("{} cannot make {} bytes of shared memory", describe(local_[0]), bytes),
          {local_[0].rank});
    }
    Outcome<UniqueFd> taken =
        take_fd({name, strnlen(name, sizeof name)}, local_, deadline, interrupted);
    if (!taken) return tl::unexpected(end_for_all(std::move(taken.error())));
    return taken;
  }
  Outcome<UniqueFd> made = make_memory_file("muster-shared", bytes);
  Outcome<FdGiver> giver = FdGiver::listen();
  if (made && giver) giver->name().copy(name, sizeof name - 1);
  const Outcome<> told = run(tell, deadline);
  if (!told) return tl::unexpected(told.error());
  if (!made) return made;
  if (!giver) return tl::unexpected(giver.error());
  Outcome<> given = giver->give(made->get(), local_, deadline, interrupted);
  if (!given) return tl::unexpected(end_for_all(std::move(given.error())));
  return made;
}

Outcome<SharedBlock> ShmGroup::allocate_shared(size_t bytes, Deadline deadline) {
  const Outcome<> same = check({.kind = OpKind::allocate_shared, .count = bytes}, deadline);
  if (!same) return tl::unexpected(same.error());
  const uint64_t number = ++last_region_;
  Outcome<UniqueFd> fd = hand_round(SharedRegions::file_bytes(local_.size(), bytes), deadline);
  Outcome<std::byte*> data = fd ? regions_->map(number, fd->get(), bytes)
                                : Outcome<std::byte*>(tl::unexpected(fd.error()));
  const Outcome<> agreed = agree(data, deadline);
  if (!agreed) {
    if (data) regions_->release(number);
    return tl::unexpected(agreed.error());
  }
  std::shared_ptr<void> owner(*data,
                              [regions = regions_, number](void*) { regions->release(number); });
  return SharedBlock{std::move(owner), *data};
}

}  // namespace muster::worker
