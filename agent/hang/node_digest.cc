// The walk_ functions list the fields once, in the order in which they are sent; writer and reader
// walk them.
//
// Numbers are varints (7 bits a byte, lowest first), signed ones zigzag. Repeated byte strings go
// through a table: 0 and a new one, or the place of an earlier one. A digest with the shape of an
// earlier rank's refers to that; its own ranks in the groups and its ages follow.
#include "agent/hang/node_digest.h"

#include <algorithm>
#include <climits>
#include <concepts>
#include <map>
#include <type_traits>
#include <utility>

#include "rendezvous/base/error.h"
#include "rendezvous/base/fields.h"
#include "rendezvous/base/text.h"

namespace muster::hang {
namespace {

// Bounds of a message; what is longer is cut or left out.
struct NewsBounds {
  static constexpr size_t kRanks = 4096;
  static constexpr size_t kGroups = 128;  // Per rank, as kMessages.
  static constexpr size_t kMessages = 2048;
  static constexpr size_t kCalls = 64;  // Per group, as kHashes.
  static constexpr size_t kHashes = 64;
  static constexpr size_t kTextBytes = 256;
  static constexpr size_t kMembers = 1'000'000;  // All lists together.
  static constexpr size_t kDecodedBytes = size_t{16} * 1024 * 1024;
  static constexpr auto kAge = std::chrono::microseconds(int64_t{1} << 50);
};

// Calls without an age get the oldest one of their group.
bool is_dated(const GroupDigest& group, size_t call) {
  constexpr size_t kCallsDated = 4;
  return group.calls[call].ordinal > group.completed || call + kCallsDated >= group.calls.size();
}

bool is_under_way(const MessageDigest& message) {
  return message.completed < message.called;
}

void walk_signature(auto& a, Like<CallDigest> auto& made) {
  auto& call = made.call;
  a.one_of(call.kind, ring::kLastCallKind);
  a.one_of(call.type, ring::ElementType::boolean);
  a.one_of(call.reduction, ring::Reduction::premultiplied_sum);
  a.flags(call.is_v, call.is_synchronous, made.has_failed, made.may_be_withdrawn);
  a.integer(call.root);
  a.integer(call.count);
}

void walk_group(auto& a, Like<GroupDigest> auto& group) {
  a.text(group.id);
  a.text(group.name);
  a.members(group.ranks);
  a.integer(group.size);
  a.one_of(group.phase, GroupPhase::closed);
  a.integer(group.called);
  a.integer(group.completed);
  a.flags(group.completion_is_late, group.completion_is_unknown, group.is_on_device,
          group.completion_is_unseen);
  uint64_t last = group.called;
  a.list(group.calls, NewsBounds::kCalls, [&](auto& made) {
    a.ordinal(made.ordinal, last);
    a.packed(made, [](auto& one, auto& call) { walk_signature(one, call); });
    a.text(made.site);
  });
  last = group.called;
  a.list(group.hashes, NewsBounds::kHashes, [&](auto& hash) {
    a.ordinal(hash.ordinal, last);
    a.integer(hash.hash);
  });
}

// Fields that ranks in the same state share.
void walk_shape(auto& a, Like<RankDigest> auto& digest) {
  a.integer(digest.generation);
  a.integer(digest.source);
  a.flags(digest.has_failed, digest.is_last);
  a.text(digest.section);
  a.list(digest.groups, NewsBounds::kGroups, [&](auto& group) { walk_group(a, group); });
  a.list(digest.messages, NewsBounds::kMessages, [&](auto& message) {
    a.text(message.group);
    a.integer(message.peer);
    a.flags(message.is_recv, message.is_synchronous, message.is_on_device,
            message.completion_is_unseen);
    a.integer(message.called);
    a.integer(message.completed);
    a.text(message.site);
  });
}

void walk_rest(auto& a, Like<RankDigest> auto& digest) {
  a.integer(digest.process);
  for (auto& group : digest.groups) {
    a.integer(group.own_rank);
    a.age(group.since);
    for (size_t i = 0; i < group.calls.size(); ++i) {
      if (is_dated(group, i)) a.age(group.calls[i].called);
    }
  }
  for (auto& message : digest.messages) {
    if (is_under_way(message)) a.age(message.called_at);
  }
}

void walk_life(auto& a, Like<Life> auto& life) {
  a.one_of(life.state, LifeState::prompting);
  a.one_of(life.sign, LifeSign::other_task);
  a.integer(life.rate);
  a.optional(life.call, [&](auto& call) {
    a.flags(call.is_known, call.has_timer);
    a.text(call.name);
    a.one_of(call.waits_for, WaitsFor::watched);
    a.integer(call.descriptor);
    a.integer(call.child);
    a.optional(call.timeout, [&](auto& timeout) { a.duration(timeout); });
  });
  a.text(life.target);
  a.text(life.wchan);
  a.text(life.thawing);
  a.integer(life.task.id);
  a.text(life.task.name);
  a.flags(life.task.is_thread);
}

// Ranks in the same state share the bytes. The reader does not charge for these texts, at most five
// for each rank.
void walk_seen(auto& a, Like<RankLife> auto& seen) {
  a.packed(seen.life, [](auto& one, auto& life) { walk_life(one, life); });
  a.age(seen.at);
}

void walk_head(auto& a, Like<NodeDigest> auto& digest) {
  a.text(digest.host);
  a.integer(digest.heard);
  a.integer(digest.jumps);
  a.flags(digest.is_suspended);
}

size_t count_members(const RankDigest& digest) {
  size_t count = 0;
  for (const GroupDigest& group : digest.groups)
    count += group.ranks.size();
  return count;
}

void forget_members(RankDigest& digest) {
  for (GroupDigest& group : digest.groups)
    std::vector<int>().swap(group.ranks);
}

// Cuts lists before the encoding: both sides must agree which call is which.
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
  void text(std::string_view value) {
    const std::string_view sent = utf8_prefix(value, NewsBounds::kTextBytes);
    number(sent.size());
    bytes += sent;
  }
  template <typename T>
  void optional(const std::optional<T>& value, auto&& walk) {
    flags(value.has_value());
    if (value) walk(*value);
  }
  // Microseconds.
  void duration(Duration value) { integer(int64_t{value / std::chrono::microseconds(1)}); }

  std::string bytes;
};

class NewsWriter : public VarintWriter {
 public:
  explicit NewsWriter(Instant now) : now_(now) {}

  void text(std::string_view value) {
    once(std::string(utf8_prefix(value, NewsBounds::kTextBytes)));
  }
  void packed(const auto& value, auto&& walk) {
    VarintWriter one;
    walk(one, value);
    once(std::move(one.bytes));
  }
  // Runs: count, the first one's distance from the last of the run before, and step.
  void members(const std::vector<int>& ranks) {
    VarintWriter runs;
    int64_t last = 0;
    for (size_t i = 0; i < ranks.size();) {
      if (ranks[i] < 0) return once({});  // Not a list of ranks.
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
  // Microseconds.
  void age(Instant at) {
    const Duration age = now_ - std::clamp<Instant>(at, now_ - NewsBounds::kAge, now_);
    number(static_cast<uint64_t>(age / std::chrono::microseconds(1)));
  }

  void rank(const RankNews& news) {
    CHECK(news.rank > last_rank_);
    number(static_cast<uint64_t>(int64_t{news.rank} - last_rank_ - 1));
    last_rank_ = news.rank;
    integer(news.pid);
    text(news.device);
    flags(news.digest.has_value(), news.life.has_value(), news.code.has_value());
    number(news.version);
    if (news.version > 0) age(news.at);
    if (news.digest) digest(*news.digest);
    if (news.life) walk_seen(*this, *news.life);
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
  void digest(RankDigest said) {
    cut_lists(said);
    if (members_ + count_members(said) > NewsBounds::kMembers) forget_members(said);
    members_ += count_members(said);
    age(said.at);
    const auto [known, is_new] = shapes_.try_emplace(shape_of(said), shapes_.size() + 1);
    number(is_new ? 0 : known->second);
    if (is_new) walk_shape(*this, said);
    walk_rest(*this, said);
  }

  Instant now_;
  int last_rank_ = -1;
  size_t members_ = 0;
  std::map<std::string, size_t> table_{{"", 1}};
  std::map<std::string, size_t> shapes_;
};

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
  void text(std::string& value) { value = take(number_below(NewsBounds::kTextBytes + 1)); }
  template <typename T>
  void optional(std::optional<T>& value, auto&& walk) {
    bool has_value = false;
    flags(has_value);
    if (has_value) walk(value.emplace());
  }
  void duration(Duration& value) {
    int64_t microseconds = 0;
    integer(microseconds);
    constexpr int64_t kMost = NewsBounds::kAge.count();
    if (microseconds < -kMost || microseconds > kMost) return breach();
    value = std::chrono::microseconds(microseconds);
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
  void packed(auto& value, auto&& walk) {
    VarintReader one(once());
    walk(one, value);
    if (!one.is_sound() || !one.is_at_end()) breach();
  }
  void members(std::vector<int>& ranks) {
    VarintReader runs(once());
    int64_t last = 0;
    while (!runs.is_at_end() && is_sound()) {
      const uint64_t count = runs.number_below(NewsBounds::kMembers - members_ + 1);
      int distance = 0;
      int step = 0;
      runs.integer(distance);
      if (count > 1) runs.integer(step);
      const int64_t first = last + distance;
      last = first + (static_cast<int64_t>(count) - 1) * step;
      const bool are_ranks = std::min(first, last) >= 0 && std::max(first, last) <= INT_MAX;
      if (!runs.is_sound() || count == 0 || !are_ranks) return breach();
      members_ += count;
      if (!charge(count * sizeof(int))) return;
      for (uint64_t i = 0; i < count; ++i)
        ranks.push_back(static_cast<int>(first + static_cast<int64_t>(i) * step));
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
  void age(Instant& at) {
    constexpr auto kEnd = static_cast<uint64_t>(NewsBounds::kAge.count()) + 1;
    at = then_ - std::chrono::microseconds(number_below(kEnd));
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
    if (news.version > 0) age(news.at);
    if (has_digest) digest(news.digest.emplace(), news.rank);
    if (has_life) walk_seen(*this, news.life.emplace());
    if (has_code) integer(news.code.emplace());
  }

 private:
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
  void digest(RankDigest& said, int rank) {
    Instant at{};
    age(at);
    const uint64_t place = number_below(shapes_.size() + 1);
    if (place == 0) {
      const size_t before = bytes_;
      walk_shape(*this, said);
      shapes_.push_back({said, bytes_ - before});
    } else {
      const Shape& shape = shapes_[place - 1];
      if (count_members(shape.first) > NewsBounds::kMembers - members_ || !charge(shape.bytes))
        return breach();
      members_ += count_members(shape.first);
      said = shape.first;
    }
    walk_rest(*this, said);
    date_rest(said);
    said.at = at;
    said.rank = rank;
  }
  struct Shape {
    RankDigest first;
    size_t bytes = 0;
  };
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

std::string shape_of(const RankDigest& digest) {
  NewsWriter writer(Instant{});
  walk_shape(writer, digest);
  return std::move(writer.bytes);
}

std::string encode(const NodeDigest& digest, Instant now) {
  NewsWriter writer(now);
  walk_head(writer, digest);
  const size_t count = std::min(digest.ranks.size(), NewsBounds::kRanks);
  writer.number(count);
  for (size_t i = 0; i < count; ++i)
    writer.rank(digest.ranks[i]);
  return std::move(writer.bytes);
}

std::optional<NodeDigest> decode_node_digest(std::string_view bytes, Instant then) {
  NewsReader reader(bytes, then);
  NodeDigest digest;
  walk_head(reader, digest);
  reader.list(digest.ranks, NewsBounds::kRanks, [&](RankNews& news) { reader.rank(news); });
  if (!reader.is_sound() || !reader.is_at_end()) return std::nullopt;
  return digest;
}

}  // namespace muster::hang
