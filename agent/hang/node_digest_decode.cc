#include <algorithm>
#include <climits>
#include <concepts>
#include <type_traits>
#include <utility>

#include "agent/hang/node_digest.h"
#include "agent/hang/node_digest_fields.h"

namespace muster::hang {
namespace {

// After a breach everything reads as zero.
class VarintReader {
 public:
  explicit VarintReader(std::string_view bytes) : rest_(bytes) {}

  uint64_t number() {
    uint64_t value = 0;
    for (int place = 0; place < 64; place += 7) {
      const std::string_view one = take(1);
      if (one.empty()) return 0;
      const auto byte = static_cast<unsigned char>(one[0]);
      value |= static_cast<uint64_t>(byte & 0x7f) << place;
      if (byte < 0x80) return value;
    }
    breach();
    return 0;
  }
  template <std::integral T>
  void integer(T& value) {
    const uint64_t bits = number();
    if constexpr (std::is_signed_v<T>) {
      const auto wide = static_cast<int64_t>(bits >> 1 ^ (~(bits & 1) + 1));
      if (!std::in_range<T>(wide)) breach();
      value = std::in_range<T>(wide) ? static_cast<T>(wide) : T{};
    } else {
      if (!std::in_range<T>(bits)) breach();
      value = static_cast<T>(bits);
    }
  }
  void flags(std::same_as<bool> auto&... values) {
    uint64_t bits = number_below(uint64_t{1} << sizeof...(values));
    ((values = (bits & 1) != 0, bits >>= 1), ...);
  }
  template <typename E>
  void one_of(E& value, E last) {
    value = static_cast<E>(number_below(static_cast<uint64_t>(last) + 1));
  }
  uint64_t number_below(uint64_t end) {
    const uint64_t value = number();
    if (value < end) return value;
    breach();
    return 0;
  }
  std::string_view take(size_t count) {
    if (rest_.size() < count) {
      breach();
      return {};
    }
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return bytes;
  }
  void breach() {
    is_sound_ = false;
    rest_ = {};
  }
  bool is_sound() const { return is_sound_; }
  bool is_at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  bool is_sound_ = true;
};

class NewsReader : public VarintReader {
 public:
  NewsReader(std::string_view bytes, Instant then) : VarintReader(bytes), then_(then) {}

  void text(std::string& value) {
    const std::string_view text = once();
    if (text.size() > NewsBounds::kTextBytes) breach();
    if (charge(text.size())) value = text;
  }
  void signature(CallDigest& made) {
    VarintReader one(once());
    walk_signature(one, made);
    if (!one.is_sound() || !one.is_at_end()) breach();
  }
  void members(std::vector<int>& ranks) {
    VarintReader runs(once());
    int64_t last = 0;
    while (!runs.is_at_end() && is_sound()) {
      const uint64_t count = runs.number();
      int64_t first = 0;
      int64_t step = 0;
      runs.integer(first);
      if (count > 1) runs.integer(step);
      if (!runs.is_sound() || count == 0 || !list_run(ranks, count, {last, first, step}))
        return breach();
      last = ranks.back();
    }
  }
  template <typename T>
  void list(std::vector<T>& values, size_t most, auto&& walk) {
    const uint64_t count = number_below(most + 1);
    for (uint64_t i = 0; i < count && is_sound() && charge(sizeof(T)); ++i)
      walk(values.emplace_back());
  }
  void ordinal(uint64_t& value, uint64_t& last) {
    int64_t distance = 0;
    integer(distance);
    value = last += static_cast<uint64_t>(distance);
  }
  void fixed(uint64_t& value) {
    const std::string_view bytes = take(8);
    for (size_t i = 0; i < bytes.size(); ++i)
      value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << 8 * i;
  }
  void difference(int& value, int other) {
    int64_t distance = 0;
    integer(distance);
    if (!is_near(distance) || !std::in_range<int>(other + distance)) return breach();
    value = static_cast<int>(other + distance);
  }
  void age(Instant& at, const Instant* other) {
    int64_t age = 0;
    integer(age);
    if (age < -NewsBounds::kMicroseconds || age > NewsBounds::kMicroseconds) return breach();
    if (other != nullptr) age += (then_ - *other) / std::chrono::microseconds(1);
    if (age < 0 || age > NewsBounds::kMicroseconds) return breach();
    at = then_ - std::chrono::microseconds(age);
  }

  void rank(RankNews& news) {
    const auto left = static_cast<uint64_t>(INT_MAX - int64_t{last_rank_});
    if (left == 0) return breach();
    news.rank = last_rank_ + 1 + static_cast<int>(number_below(left));
    last_rank_ = news.rank;
    integer(news.pid);
    text(news.device);
    bool has_digest = false;
    bool has_life = false;
    bool has_code = false;
    flags(has_digest, has_life, has_code);
    news.version = number();
    if (news.version > 0) age(news.at, nullptr);
    if (has_digest) digest(news.digest.emplace(), news.rank);
    if (has_life) walk_life(*this, news.life.emplace());
    if (has_code) integer(news.code.emplace());
  }

 private:
  // So that sums do not overflow.
  static bool is_near(int64_t distance) {
    return distance >= -(int64_t{1} << 33) && distance <= int64_t{1} << 33;
  }
  struct Run {
    int64_t last = 0;  // Of the run before.
    int64_t first = 0;
    int64_t step = 0;
  };

  std::string_view once() {
    const uint64_t place = number_below(table_.size() + 1);
    if (place > 0) return table_[place - 1];
    table_.push_back(take(number()));
    return table_.back();
  }
  bool charge(size_t bytes) {
    bytes_ += bytes;
    if (bytes_ > NewsBounds::kDecodedBytes) breach();
    return is_sound();
  }
  // False: too many, or not ranks.
  bool list_run(std::vector<int>& ranks, uint64_t count, const Run& run) {
    if (count > NewsBounds::kMembers - members_ || !is_near(run.first) || !is_near(run.step))
      return false;
    const int64_t first = run.last + run.first;
    const int64_t last = first + static_cast<int64_t>(count - 1) * run.step;
    if (std::min(first, last) < 0 || std::max(first, last) > INT_MAX) return false;
    members_ += count;
    if (!charge(count * sizeof(int))) return false;
    const size_t before = ranks.size();
    ranks.resize(before + count);
    int* const begin = ranks.data() + before;
    for (size_t i = 0; i < count; ++i)
      begin[i] = static_cast<int>(first + static_cast<int64_t>(i) * run.step);
    return true;
  }
  void digest(RankDigest& said, int rank) {
    age(said.at, nullptr);
    const uint64_t shape = number_below(2 * shapes_.size() + 2);
    if (shape < 2) {
      if (shape == 1) return breach();
      const size_t before = bytes_;
      walk_shape(*this, said);
      walk_rest(*this, said, nullptr);
      date_rest(said);
      shapes_.push_back({said, bytes_ - before});
    } else {
      like(said, shapes_[shape / 2 - 1], shape % 2 == 0);
    }
    said.rank = rank;
  }
  struct Shape {
    RankDigest first;
    size_t bytes = 0;
  };
  void like(RankDigest& said, const Shape& shape, bool has_members) {
    const Instant at = said.at;
    if (has_members) members_ += members_in(shape.first);
    if (members_ > NewsBounds::kMembers || !charge(shape.bytes)) return breach();
    said = shape.first;
    said.at = at;
    if (!has_members) forget_members(said);
    walk_rest(*this, said, &shape.first);
    date_rest(said);
  }
  // Calls that were sent without an age.
  static void date_rest(RankDigest& said) {
    for (GroupDigest& group : said.groups) {
      Instant oldest = Instant::max();
      for (size_t i = 0; i < group.calls.size(); ++i)
        oldest = is_dated(group, i) ? std::min(oldest, group.calls[i].called) : oldest;
      for (size_t i = 0; i < group.calls.size(); ++i) {
        if (!is_dated(group, i)) group.calls[i].called = oldest;
      }
    }
  }

  Instant then_;
  int last_rank_ = -1;
  size_t members_ = 0;
  size_t bytes_ = 0;
  std::vector<std::string_view> table_{""};
  std::vector<Shape> shapes_;
};

}  // namespace

std::optional<NodeDigest> decode_node_digest(std::string_view bytes, Instant then) {
  NewsReader reader(bytes, then);
  NodeDigest digest;
  walk_head(reader, digest);
  reader.list(digest.ranks, NewsBounds::kRanks, [&](RankNews& news) { reader.rank(news); });
  if (!reader.is_sound() || !reader.is_at_end()) return std::nullopt;
  return digest;
}

}  // namespace muster::hang
