#include "worker_lib/stragglers/rank_progress.h"

#include <algorithm>
#include <limits>

#include "rendezvous/base/text.h"
#include "worker_lib/fields.h"

namespace muster::worker {
namespace {

// The first field: texts of other versions are not decoded.
constexpr std::string_view kRankProgressVersion = "muster progress 1";

using Fields = std::vector<std::string>;

class FieldsReader {
 public:
  explicit FieldsReader(std::string_view text) : fields_(decode_fields(text)) {
    ok_ = fields_.has_value();
  }

  std::string text() {
    if (!ok_ || next_ == fields_->size()) {
      ok_ = false;
      return {};
    }
    return (*fields_)[next_++];
  }
  template <typename Number>
  Number number(Number least, Number most) {
    const std::optional<Number> value = whole_number<Number>(text());
    if (!value || *value < least || *value > most) ok_ = false;
    return ok_ ? *value : least;
  }
  uint64_t number() { return number<uint64_t>(0, std::numeric_limits<uint64_t>::max()); }
  int rank(int least = 0) { return number(least, std::numeric_limits<int>::max()); }
  std::vector<int> ranks() {
    FieldsReader list(text());
    std::vector<int> made;
    while (list.ok_ && !list.is_over())
      made.push_back(list.rank());
    if (!list.ok_ || made.size() > kAwaitedMax) ok_ = false;
    return made;
  }
  bool is_over() const { return !ok_ || next_ == fields_->size(); }
  bool ok() const { return ok_; }
  void refuse() { ok_ = false; }

 private:
  std::optional<Fields> fields_;
  size_t next_ = 0;
  bool ok_ = true;
};

std::string encode_ranks(const std::vector<int>& ranks) {
  Fields fields;
  for (size_t i = 0; i < std::min(ranks.size(), kAwaitedMax); ++i)
    fields.push_back(std::to_string(ranks[i]));
  return encode_fields(fields);
}

std::string encode_lane(const LaneProgress& lane) {
  Fields fields{std::to_string(lane.begun), std::to_string(lane.ended), lane.last,
                lane.is_held ? "1" : "0", encode_ranks(lane.awaited)};
  for (const NumberedCall& one : lane.calls) {
    const CallSignature& call = one.signature;
    for (const uint64_t part : {one.number, call.word, call.count, call.counts_hash})
      fields.push_back(std::to_string(part));
  }
  return encode_fields(fields);
}

LaneProgress decode_lane(FieldsReader& in) {
  FieldsReader fields(in.text());
  LaneProgress lane;
  lane.begun = fields.number();
  lane.ended = fields.number();
  lane.last = fields.text();
  lane.is_held = fields.number(0, 1) == 1;
  lane.awaited = fields.ranks();
  while (!fields.is_over() && lane.calls.size() < kCallsKept) {
    const uint64_t number = fields.number();
    const uint64_t word = fields.number();
    const uint64_t count = fields.number();
    lane.calls.push_back({number, {word, count, fields.number()}});
  }
  if (!fields.ok() || !fields.is_over()) in.refuse();
  return lane;
}

std::string encode_group(const GroupProgress& group) {
  Fields fields{group.id, group.name, encode_ranks(group.members)};
  for (const LaneProgress& lane : group.lanes)
    fields.push_back(encode_lane(lane));
  for (const TransferProgress& one : group.transfers) {
    fields.push_back(std::to_string(static_cast<int>(one.kind)));
    fields.push_back(std::to_string(one.peer));
  }
  return encode_fields(fields);
}

GroupProgress decode_group(FieldsReader& in) {
  FieldsReader fields(in.text());
  GroupProgress group;
  group.id = fields.text();
  group.name = fields.text();
  group.members = fields.ranks();
  for (LaneProgress& lane : group.lanes)
    lane = decode_lane(fields);
  while (!fields.is_over()) {
    const int kind = fields.number(static_cast<int>(OpKind::send), static_cast<int>(OpKind::recv));
    const int peer = fields.rank(-1);
    group.transfers.push_back({static_cast<OpKind>(kind), peer});
  }
  if (!fields.ok()) in.refuse();
  return group;
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
  Fields fields{std::string(kRankProgressVersion), std::to_string(troubles.size())};
  for (const Trouble& one : troubles) {
    fields.push_back(std::to_string(one.age.count()));
    fields.push_back(encode_ranks(one.origin));
  }
  for (const GroupProgress& group : groups)
    fields.push_back(encode_group(group));
  return encode_fields(fields);
}

std::optional<RankProgress> RankProgress::decode(std::string_view text) {
  FieldsReader fields(text);
  if (fields.text() != kRankProgressVersion) return std::nullopt;
  RankProgress made;
  for (uint64_t left = fields.number(); fields.ok() && left > 0; --left) {
    const auto age = fields.number<int64_t>(0, std::numeric_limits<int64_t>::max());
    made.troubles.push_back({fields.ranks(), std::chrono::milliseconds(age)});
  }
  while (!fields.is_over())
    made.groups.push_back(decode_group(fields));
  return fields.ok() ? std::optional(std::move(made)) : std::nullopt;
}

}  // namespace muster::worker
