#include "worker_lib/recorder/nccl_profiler/communicator.h"

#include <exception>
#include <string>

#include <fmt/format.h>

#include "worker_lib/recorder/nccl_profiler/nccl_words.h"

namespace muster::nccl {

using ring::CallKind;

void Communicator::close() {
  if (writer_ != nullptr && is_open_) writer_->set_state(group_, ring::GroupState::closed);
}

// Records no ranks of the job: NCCL only knows the members' places in the communicator.
void Communicator::open(std::string_view name, uint64_t hash, int size, int rank) noexcept try {
  if (writer_ == nullptr) return;
  is_open_ = true;
  const std::string id = fmt::format("nccl-{:016x}", hash);
  group_ = writer_->open_group({.id = id,
                                .name = name.empty() ? id : name,
                                .size = size,
                                .own_rank = rank,
                                .is_on_device = true});
  writer_->set_state(group_, ring::GroupState::ready);
} catch (const std::exception&) {
}

void Communicator::note_captured() {
  if (writer_ != nullptr && !is_captured_.exchange(true)) writer_->set_calls_unknown(group_);
}

bool Communicator::repeats(CallKind kind, uint64_t sequence) {
  uint64_t& next = sequences_[static_cast<size_t>(kind)];
  const bool is_repeated = sequence < next;
  next = sequence + 1;
  return is_repeated;
}

ring::Pending Communicator::collective_called(const EventFacts& event, bool has_launched) {
  const CallKind kind = kind_in(event.function);
  if (event.is_captured || (has_launched && repeats(kind, event.sequence))) note_captured();
  if (event.is_captured || group_ < 0) return {};
  const ring::Call call{.kind = kind,
                        .type = type_in(event.datatype),
                        .root = has_root(kind) ? event.root : -1,
                        .count = event.count};
  ring::Pending pending = writer_->called(group_, ordinal_.fetch_add(1) + 1, call, nullptr);
  if (has_launched) writer_->launched(pending);
  return pending;
}

ring::Pending Communicator::message_called(const EventFacts& event) {
  if (group_ < 0 || is_captured_) return {};
  const ring::Call call{.kind = kind_in(event.function),
                        .type = type_in(event.datatype),
                        .root = event.root,
                        .count = event.count};
  if (!ring::is_message(call.kind)) return {};
  return writer_->message_called(group_, call, 0, nullptr);
}

ring::Pending Communicator::last_call() const {
  ring::Pending pending;
  pending.group = group_;
  pending.ordinal = ordinal_;
  return pending;
}

}  // namespace muster::nccl
