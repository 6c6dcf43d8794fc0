#include "worker_lib/stragglers/rank_progress.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "rendezvous/net/field_codec.h"

namespace muster::worker {
namespace {

// First field: texts of other versions are not decoded.
constexpr std::string_view kRankProgressVersion = "muster progress 2";
// Bound for lists and names, above any real size.
constexpr uint32_t kProgressMax = 1 << 20;

constexpr int kRankNumberMax = std::numeric_limits<int>::max();

template <typename T>
concept IsRead = !std::is_const_v<std::remove_reference_t<T>>;

// Drops ranks after the first kAwaitedMax.
void rank_list(auto& a, auto& ranks) {
  std::vector<int> listed = ranks;
  listed.resize(std::min(listed.size(), kAwaitedMax));
  a.list(listed, kAwaitedMax, [&](auto& rank) { a.number(rank, 0, kRankNumberMax); });
  if constexpr (IsRead<decltype(ranks)>) ranks = std::move(listed);
}

void progress_fields(auto& a, Like<NumberedCall> auto& m) {
  a.integer(m.number);
  a.integer(m.signature.word);
  a.integer(m.signature.count);
  a.integer(m.signature.counts_hash);
}

void progress_fields(auto& a, Like<LaneProgress> auto& m) {
  a.integer(m.begun);
  a.integer(m.ended);
  a.text(m.last, kProgressMax);
  a.flag(m.is_held);
  rank_list(a, m.awaited);
  a.list(m.calls, kCallsKept, [&](auto& call) { progress_fields(a, call); });
}

void progress_fields(auto& a, Like<GroupProgress> auto& m) {
  a.text(m.id, kProgressMax);
  a.text(m.name, kProgressMax);
  rank_list(a, m.members);
  for (auto& lane : m.lanes)
    progress_fields(a, lane);
  a.list(m.transfers, kProgressMax, [&](auto& transfer) {
    a.one_of(transfer.kind, OpKind::recv, OpKind::send);
    a.number(transfer.peer, -1, kRankNumberMax);
  });
}

void progress_fields(auto& a, Like<Trouble> auto& m) {
  Duration age = m.age;
  a.duration(age);
  if constexpr (IsRead<decltype(m)>)
    m.age = std::chrono::duration_cast<std::chrono::milliseconds>(age);
  rank_list(a, m.origin);
}

void progress_fields(auto& a, Like<RankProgress> auto& m) {
  a.list(m.troubles, kProgressMax, [&](auto& trouble) { progress_fields(a, trouble); });
  a.list(m.groups, kProgressMax, [&](auto& group) { progress_fields(a, group); });
}

}  // namespace

const CallSignature* LaneProgress::call(uint64_t number) const {
  const auto found = std::ranges::find(calls, number, &NumberedCall::number);
  return found == calls.end() ? nullptr : &found->signature;
}

const GroupProgress* RankProgress::group(std::string_view id) const {
  const auto found = std::ranges::find(groups, id, &GroupProgress::id);
  return found == groups.end() ? nullptr : &*found;
}

std::string RankProgress::encode() const {
  std::string bytes;
  FieldWriter writer(bytes);
  writer.text(kRankProgressVersion, kProgressMax);
  progress_fields(writer, *this);
  return bytes;
}

std::optional<RankProgress> RankProgress::decode(std::string_view bytes) {
  FieldReader reader(bytes);
  std::string version;
  reader.text(version, kProgressMax);
  RankProgress made;
  progress_fields(reader, made);
  if (version != kRankProgressVersion || reader.end() != nullptr) return std::nullopt;
  return made;
}

}  // namespace muster::worker
