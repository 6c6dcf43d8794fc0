// The binary encoding of messages: each message type lists its fields once, and a FieldWriter and a
// FieldReader walk the same list.
//
//   void fields(auto& a, Like<Welcome> auto& m) {
//     a.raw(m.worker_seed);
//     a.text(m.host_name, kNameBytesMax);
//   }
//
// Integers are little-endian; a text or a list begins with its length in 4 bytes. A text over its
// limit is cut. Pure; reading treats its input as hostile.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "rendezvous/base/fields.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/time.h"

namespace muster {

// Makes `value` hold its alternative at `index`. REQUIRES: index < its number of alternatives.
template <typename... Ts>
void emplace_nth(std::variant<Ts...>& value, size_t index) {
  size_t i = 0;
  static_cast<void>(((i++ == index && (value.template emplace<Ts>(), true)) || ...));
}

class FieldWriter {
 public:
  explicit FieldWriter(std::string& out) : out_(out) {}

  template <std::integral T>
  void integer(T value) {
    auto bits = static_cast<std::make_unsigned_t<T>>(value);
    for (size_t i = 0; i < sizeof(T); ++i) {
      out_.push_back(static_cast<char>(bits & 0xff));
      bits = static_cast<decltype(bits)>(static_cast<uint64_t>(bits) >> 8);
    }
  }
  void number(int value, int /*least*/, int /*most*/) { integer(value); }
  void flag(bool value) { integer(uint8_t{value}); }
  void duration(Duration value) { integer(static_cast<int64_t>(value.count())); }
  void instant(Instant value) { integer(static_cast<int64_t>(value.time_since_epoch().count())); }
  template <size_t n>
  void raw(const std::array<uint8_t, n>& bytes) {
    out_.append(bytes.begin(), bytes.end());
  }
  void text(std::string_view value, size_t bytes_max) {
    const std::string_view kept = utf8_prefix(value, bytes_max);
    integer(static_cast<uint32_t>(kept.size()));
    out_.append(kept);
  }
  template <typename E>
  void one_of(E value, E /*last*/, E /*first*/ = E{}) {
    integer(static_cast<uint8_t>(value));
  }
  template <typename T, typename Walk>
  void maybe(const std::optional<T>& value, Walk&& walk) {
    flag(value.has_value());
    if (value) walk(*value);
  }
  template <typename Variant, typename Walk>
  void alternative(const Variant& value, Walk&& walk) {
    integer(static_cast<uint8_t>(value.index()));
    std::visit(walk, value);
  }
  template <typename T, typename Walk>
  void list(const std::vector<T>& values, uint32_t /*count_max*/, Walk&& walk) {
    integer(static_cast<uint32_t>(values.size()));
    for (const T& value : values)
      walk(value);
  }

 private:
  std::string& out_;
};

// After a breach all fields read as zero or their least legal value; why_ describes the first one.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : rest_(bytes) {}

  template <std::integral T>
  void integer(T& value) {
    const std::string_view bytes = take(sizeof(T));
    uint64_t bits = 0;
    for (size_t i = bytes.size(); i > 0; --i)
      bits = bits << 8 | static_cast<unsigned char>(bytes[i - 1]);
    value = static_cast<T>(bits);
  }
  void number(int& value, int least, int most) {
    value = ranged(least, most, "a number out of its range");
  }
  void flag(bool& value) { value = ranged<uint8_t>(0, 1, "a flag that is neither 0 nor 1") == 1; }
  void duration(Duration& value) {
    value = Duration{ranged<int64_t>(0, Duration::max().count(), "a negative duration")};
  }
  // Limited to an eighth of the type's range so that sums and differences do not overflow.
  void instant(Instant& value) {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 8;
    value = Instant{Duration{ranged(-kMost, kMost, "an instant out of its range")}};
  }
  template <size_t n>
  void raw(std::array<uint8_t, n>& bytes) {
    const std::string_view from = take(n);
    std::ranges::copy(from, bytes.begin());
  }
  void text(std::string& value, size_t bytes_max) {
    value = take(ranged<uint32_t>(0, static_cast<uint32_t>(bytes_max), "a text that is too long"));
  }
  template <typename E>
  void one_of(E& value, E last, E first = E{}) {
    value = static_cast<E>(ranged<uint8_t>(static_cast<uint8_t>(first), static_cast<uint8_t>(last),
                                           "an unknown kind"));
  }
  template <typename T, typename Walk>
  void maybe(std::optional<T>& value, Walk&& walk) {
    bool has = false;
    flag(has);
    if (has) walk(value.emplace());
  }
  template <typename Variant, typename Walk>
  void alternative(Variant& value, Walk&& walk) {
    emplace_nth(value, ranged<uint8_t>(0, std::variant_size_v<Variant> - 1, "an unknown kind"));
    std::visit(walk, value);
  }
  template <typename T, typename Walk>
  void list(std::vector<T>& values, uint32_t count_max, Walk&& walk) {
    const auto count = ranged<uint32_t>(0, count_max, "a list that is too long");
    for (uint32_t i = 0; i < count && !why_; ++i)
      walk(values.emplace_back());
  }
  // Returns the first breach, or null if there was none and everything was read.
  const char* end() {
    if (!rest_.empty()) breach("more bytes than it should have");
    return why_;
  }

 protected:
  // Reads an integer; out of range is a breach and reads as `least`.
  template <std::integral T>
  T ranged(T least, T most, const char* fault) {
    T value{};
    integer(value);
    if (value >= least && value <= most) return value;
    breach(fault);
    return least;
  }
  void breach(const char* why) {
    if (!why_) why_ = why;
    rest_ = {};
  }
  void skip_rest() { rest_ = {}; }

 private:
  std::string_view take(size_t count) {
    if (rest_.size() < count) {
      breach("fewer bytes than it should have");
      return {};
    }
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return bytes;
  }

  std::string_view rest_;
  const char* why_ = nullptr;
};

}  // namespace muster
