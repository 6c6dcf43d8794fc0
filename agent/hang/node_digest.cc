#include "agent/hang/node_digest.h"

#include <algorithm>
#include <concepts>
#include <map>
#include <type_traits>
#include <utility>

#include "agent/hang/node_digest_fields.h"
#include "rendezvous/base/error.h"
#include "rendezvous/net/field_codec.h"

namespace muster::hang {
namespace {

// Lists are cut before: the two sides must agree which call is which.
void cut_lists(RankDigest& digest) {
  const auto cut = [](auto& list, size_t most) {
    if (list.size() > most) list.erase(list.begin(), list.end() - static_cast<ptrdiff_t>(most));
  };
  cut(digest.groups, NewsBounds::kGroups);
  cut(digest.messages, NewsBounds::kMessages);
  for (GroupDigest& group : digest.groups) {
    cut(group.calls, NewsBounds::kCalls);
    cut(group.hashes, NewsBounds::kHashes);
  }
}

class VarintWriter {
 public:
  void number(uint64_t value) {
    for (; value >= 0x80; value >>= 7)
      bytes.push_back(static_cast<char>(value | 0x80));
    bytes.push_back(static_cast<char>(value));
  }
  template <std::integral T>
  void integer(T value) {
    if constexpr (std::is_signed_v<T>) {
      const auto wide = static_cast<int64_t>(value);
      number(static_cast<uint64_t>(wide) << 1 ^ static_cast<uint64_t>(wide >> 63));
    } else {
      number(value);
    }
  }
  void flags(std::same_as<bool> auto... values) {
    uint64_t bits = 0;
    int place = 0;
    ((bits |= uint64_t{values} << place++), ...);
    number(bits);
  }
  template <typename E>
  void one_of(E value, E /*last*/) {
    number(static_cast<uint64_t>(value));
  }

  std::string bytes;
};

class NewsWriter : public VarintWriter {
 public:
  explicit NewsWriter(Instant now) : now_(now) {}

  void text(std::string_view value) {
    once(std::string(utf8_prefix(value, NewsBounds::kTextBytes)));
  }
  void signature(const CallDigest& made) {
    VarintWriter one;
    walk_signature(one, made);
    once(std::move(one.bytes));
  }
  // Runs: how many, the first one's distance from the last of the run before, and the step.
  void members(const std::vector<int>& ranks) {
    VarintWriter runs;
    int64_t last = 0;
    for (size_t i = 0; i < ranks.size();) {
      if (ranks[i] < 0) return once({});  // No list of ranks.
      const int64_t first = ranks[i];
      const int64_t step = i + 1 < ranks.size() ? ranks[i + 1] - first : 0;
      size_t count = 1;
      while (i + count < ranks.size() && ranks[i + count] - int64_t{ranks[i + count - 1]} == step)
        ++count;
      runs.number(count);
      runs.integer(first - last);
      if (count > 1) runs.integer(step);
      i += count;
      last = ranks[i - 1];
      if (last < 0) return once({});
    }
    once(std::move(runs.bytes));
  }
  template <typename T>
  void list(const std::vector<T>& values, size_t /*most*/, auto&& walk) {
    number(values.size());
    for (const T& value : values)
      walk(value);
  }
  void ordinal(uint64_t value, uint64_t& last) {
    integer(static_cast<int64_t>(value - std::exchange(last, value)));
  }
  void fixed(uint64_t value) {
    for (int i = 0; i < 8; ++i)
      bytes.push_back(static_cast<char>(value >> 8 * i));
  }
  void difference(int value, int other) { integer(int64_t{value} - other); }
  void age(Instant at, const Instant* other) {
    integer(microseconds(at) - (other == nullptr ? 0 : microseconds(*other)));
  }

  void rank(const RankNews& news) {
    CHECK(news.rank > last_rank_);
    number(static_cast<uint64_t>(news.rank - last_rank_ - 1));
    last_rank_ = news.rank;
    integer(news.pid);
    text(news.device);
    flags(news.digest.has_value(), news.life.has_value(), news.code.has_value());
    number(news.version);
    if (news.version > 0) age(news.at, nullptr);
    if (news.digest) digest(*news.digest);
    if (news.life) walk_life(*this, *news.life);
    if (news.code) integer(*news.code);
  }

 private:
  void once(std::string value) {
    const auto [entry, is_new] = table_.try_emplace(std::move(value), table_.size() + 1);
    if (!is_new) return number(entry->second);
    number(0);
    number(entry->first.size());
    bytes += entry->first;
  }
  int64_t microseconds(Instant at) const {
    if (at >= now_) return 0;
    if (at <= now_ - std::chrono::microseconds(NewsBounds::kMicroseconds))
      return NewsBounds::kMicroseconds;
    return (now_ - at) / std::chrono::microseconds(1);
  }
  void digest(RankDigest said) {
    cut_lists(said);
    age(said.at, nullptr);
    const auto known =
        std::ranges::find_if(shapes_, [&](const RankDigest& one) { return say_alike(one, said); });
    const size_t count = members_in(said);
    const bool has_members = members_ + count <= NewsBounds::kMembers;
    if (has_members) members_ += count;
    if (known != shapes_.end()) {
      const auto place = static_cast<uint64_t>(known - shapes_.begin());
      number(2 * (place + 1) + (has_members ? 0 : 1));
      return walk_rest(*this, said, &*known);
    }
    number(0);
    if (!has_members) forget_members(said);
    walk_shape(*this, said);
    walk_rest(*this, said, nullptr);
    shapes_.push_back(std::move(said));
  }

  Instant now_;
  int last_rank_ = -1;
  size_t members_ = 0;
  std::map<std::string, size_t> table_{{"", 1}};
  std::vector<RankDigest> shapes_;
};

}  // namespace

std::string encode(const NodeDigest& digest, Instant now) {
  NewsWriter writer(now);
  walk_head(writer, digest);
  const size_t count = std::min(digest.ranks.size(), NewsBounds::kRanks);
  writer.number(count);
  for (size_t i = 0; i < count; ++i)
    writer.rank(digest.ranks[i]);
  return std::move(writer.bytes);
}

}  // namespace muster::hang
