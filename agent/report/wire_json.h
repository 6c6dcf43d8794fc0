// JSON between agents: each type lists its fields once, in a function template that both a
// JsonWriter and a JsonReader run. The bytes come from the network, so a reader checks that every
// field exists and has its type and range. `wrong` names the first that fails; values read after it
// are meaningless. Unknown fields are ignored. Pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "agent/report/text.h"
#include "rendezvous/base/fields.h"
#include "rendezvous/base/text.h"

namespace muster::wire {

using Json = nlohmann::ordered_json;

inline constexpr int64_t kCountMax = int64_t{1} << 30;
inline constexpr int64_t kBigMax = int64_t{1} << 52;
inline constexpr int64_t kTimeMax = int64_t{1} << 62;  // ns: the year 2116, far from any overflow.

inline std::string dump(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

// Valid UTF-8 of at most `bytes_max` bytes (at least 3); ends in "..." if it was cut.
inline std::string fitting_text(std::string_view raw, size_t bytes_max) {
  std::string text = valid_utf8(raw);
  if (text.size() <= bytes_max) return text;
  return std::string(utf8_prefix(text, bytes_max - std::min<size_t>(bytes_max, 3))) + "...";
}

// The fields of a value, as listed by the overload of fields() for its type.
struct AllFields {
  void operator()(auto& archive, auto& value) const { fields(archive, value); }
};

class JsonWriter {
 public:
  // Cuts every text to `text_max` bytes.
  explicit JsonWriter(size_t text_max) : text_max_(text_max) {}

  void text(const char* key, const std::string& value) {
    json_[key] = fitting_text(value, text_max_);
  }
  // Omitted if empty: for a field that older versions lack.
  void text_if_any(const char* key, const std::string& value) {
    if (!value.empty()) text(key, value);
  }
  void flag(const char* key, bool value) { json_[key] = value; }
  void flag_if_any(const char* key, bool value) {
    if (value) flag(key, value);
  }
  template <std::integral T>
  void number(const char* key, T value, int64_t low, int64_t high) {
    json_[key] = std::clamp(static_cast<int64_t>(value), low, high);
  }
  template <std::integral T>
  void maybe_number(const char* key, const std::optional<T>& value, int64_t low, int64_t high) {
    put(key, {});
    if (value) number(key, *value, low, high);
  }
  template <typename E>
  void one_of(const char* key, E value, E /*last*/) {
    json_[key] = static_cast<int>(value);
  }
  template <typename T, typename Walk = AllFields>
  void maybe(const char* key, const std::optional<T>& value, const Walk& walk = Walk()) {
    put(key, {});
    if (value) object(key, *value, walk);
  }
  template <typename T, typename Walk>
  void maybe_if_any(const char* key, const std::optional<T>& value, const Walk& walk) {
    if (value) object(key, *value, walk);
  }
  template <typename T, typename Walk = AllFields>
  void object(const char* key, const T& value, const Walk& walk = Walk()) {
    JsonWriter inner(text_max_);
    walk(inner, value);
    json_[key] = inner.take();
  }
  template <typename T, typename Walk>
  void list(const char* key, const std::vector<T>& values, Walk&& walk) {
    Json& elements = json_[key] = Json::array();
    for (const T& value : values) {
      JsonWriter inner(text_max_);
      walk(inner, value);
      elements.push_back(inner.take());
    }
  }
  template <typename T, typename Walk>
  void list_if_any(const char* key, const std::vector<T>& values, Walk&& walk) {
    if (!values.empty()) list(key, values, walk);
  }
  void put(const char* key, Json value) { json_[key] = std::move(value); }

  Json take() { return std::move(json_); }

 private:
  size_t text_max_;
  Json json_ = Json::object();
};

class JsonReader {
 public:
  JsonReader(const Json& json, std::string& wrong) : json_(json), wrong_(wrong) {
    if (!json_.is_object()) miss("object");
  }

  void text(const char* key, std::string& value) {
    const Json& found = at(key);
    if (!found.is_string()) return miss(key);
    value = found.get<std::string>();
  }
  void text_if_any(const char* key, std::string& value) {
    if (has(key)) text(key, value);
  }
  void flag(const char* key, bool& value) {
    const Json& found = at(key);
    if (!found.is_boolean()) return miss(key);
    value = found.get<bool>();
  }
  void flag_if_any(const char* key, bool& value) {
    if (has(key)) flag(key, value);
  }
  template <std::integral T>
  void number(const char* key, T& value, int64_t low, int64_t high) {
    const Json& found = at(key);
    const bool huge = found.is_number_unsigned() &&
                      found.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
    if (!found.is_number_integer() || huge) return miss(key);
    const auto number = found.get<int64_t>();
    if (number < low || number > high) return miss(key);
    value = static_cast<T>(number);
  }
  template <typename E>
  void one_of(const char* key, E& value, E last) {
    int number = 0;
    this->number(key, number, 0, static_cast<int>(last));
    value = static_cast<E>(number);
  }
  template <std::integral T>
  void maybe_number(const char* key, std::optional<T>& value, int64_t low, int64_t high) {
    if (!at(key).is_null()) number(key, value.emplace(), low, high);
  }
  template <typename T, typename Walk = AllFields>
  void maybe(const char* key, std::optional<T>& value, const Walk& walk = Walk()) {
    if (!at(key).is_null()) object(key, value.emplace(), walk);
  }
  template <typename T, typename Walk>
  void maybe_if_any(const char* key, std::optional<T>& value, const Walk& walk) {
    if (has(key)) object(key, value.emplace(), walk);
  }
  template <typename T, typename Walk = AllFields>
  void object(const char* key, T& value, const Walk& walk = Walk()) {
    JsonReader inner(at(key), wrong_);
    walk(inner, value);
  }
  template <typename T, typename Walk>
  void list(const char* key, std::vector<T>& values, Walk&& walk) {
    each(key, kCountMax, [&](const Json& element) {
      JsonReader inner(element, wrong_);
      walk(inner, values.emplace_back());
    });
  }

  template <typename T, typename Walk>
  void list_if_any(const char* key, std::vector<T>& values, Walk&& walk) {
    if (has(key)) list(key, values, walk);
  }

  // Visits the elements of a list of at most `count_max`; stops at the first error.
  template <typename Each>
  void each(const char* key, size_t count_max, Each&& visit) {
    const Json& list = at(key);
    if (!list.is_array() || list.size() > count_max) return miss(key);
    for (const Json& element : list) {
      if (!wrong_.empty()) return;
      visit(element);
    }
  }

  bool has(const char* key) const { return json_.is_object() && json_.contains(key); }
  const Json& at(const char* key) {
    static const Json kNothing;
    if (has(key)) return json_.find(key).value();
    miss(key);
    return kNothing;
  }
  void miss(const char* key) {
    if (wrong_.empty()) wrong_ = key;
  }

 private:
  const Json& json_;
  std::string& wrong_;
};

template <typename Archive>
inline constexpr bool kReads = std::same_as<std::remove_cvref_t<Archive>, JsonReader>;

// A whole value as JSON. `text_max` and `wrong`: as above.
template <typename T>
Json json_of(const T& value, size_t text_max) {
  JsonWriter writer(text_max);
  fields(writer, value);
  return writer.take();
}
template <typename T>
T read(const Json& json, std::string& wrong) {
  JsonReader reader(json, wrong);
  T value;
  fields(reader, value);
  return value;
}

inline void numbers(JsonWriter& a, const char* key, const std::vector<int>& values,
                    size_t count_max) {
  Json list = Json::array();
  for (size_t i = 0; i < std::min(values.size(), count_max); ++i)
    list.push_back(values[i]);
  a.put(key, std::move(list));
}
inline void numbers(JsonReader& a, const char* key, std::vector<int>& values, size_t count_max) {
  a.each(key, count_max, [&](const Json& element) {
    const bool good = element.is_number_integer() && element >= 0 && element <= kCountMax;
    if (!good) return a.miss(key);
    values.push_back(element.get<int>());
  });
}

// A duration or a time, in nanoseconds within [low, high].
template <typename Archive>
void nanoseconds(Archive& a, const char* key, auto& duration, int64_t low, int64_t high) {
  auto count = static_cast<int64_t>(duration.count());
  a.number(key, count, low, high);
  if constexpr (kReads<Archive>) duration = std::remove_cvref_t<decltype(duration)>{count};
}

}  // namespace muster::wire
