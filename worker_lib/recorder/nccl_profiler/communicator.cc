#include "worker_lib/recorder/nccl_profiler/communicator.h"

#include <algorithm>
#include <array>
#include <exception>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "rendezvous/ring/call_rules.h"

namespace muster::nccl {

using ring::CallKind;

namespace {

// The names of functions and element types in NCCL's events (ncclFuncToString(),
// ncclDatatypeToString()) as the ring's enums.
struct Type {
  std::string_view name;
  ring::ElementType value;
};

constexpr std::array kDatatypes{Type{"ncclBfloat16", ring::ElementType::bfloat16},
                                Type{"ncclFloat32", ring::ElementType::float32},
                                Type{"ncclFloat16", ring::ElementType::float16},
                                Type{"ncclInt8", ring::ElementType::int8},
                                Type{"ncclInt64", ring::ElementType::int64},
                                Type{"ncclInt32", ring::ElementType::int32},
                                Type{"ncclFloat64", ring::ElementType::float64},
                                Type{"ncclFloat8e4m3", ring::ElementType::float8_e4m3},
                                Type{"ncclFloat8e5m2", ring::ElementType::float8_e5m2},
                                Type{"ncclUint8", ring::ElementType::uint8},
                                Type{"ncclUint32", ring::ElementType::uint32},
                                Type{"ncclUint64", ring::ElementType::uint64}};

std::string_view nccl_text(const char* text) {
  return text == nullptr ? std::string_view() : text;
}

// `function`: "AllReduce". Returns `unknown` for nullptr and for functions that no rule compares.
CallKind kind_in(const char* function) {
  const std::string_view name = nccl_text(function);
  const auto row = std::ranges::find(ring::kCallRows, name, &ring::CallRow::nccl_name);
  return row == ring::kCallRows.end() ? CallKind::unknown : row->kind;
}

// `datatype`: "ncclFloat32". NCCL has no name for uint8: it says "Unknown".
ring::ElementType type_in(const char* datatype) {
  const auto known = std::ranges::find(kDatatypes, nccl_text(datatype), &Type::name);
  return known == kDatatypes.end() ? ring::ElementType::unknown : known->value;
}

}  // namespace

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
