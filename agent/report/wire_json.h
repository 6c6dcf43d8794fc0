// JSON of our own: each type lists its fields once, in a function template that both a JsonWriter
// and a JsonReader run. The bytes come from other processes, so a reader checks the type and range
// of every field. `wrong` says what the first one that fails is not; values read after it are
// meaningless. Unknown fields are ignored. Pure.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/report/text.h"
#include "rendezvous/base/fields.h"
#include "rendezvous/base/text.h"

namespace muster::wire {

using Json = nlohmann::json;  // Sorts keys: hostile ones cost no quadratic time.

inline constexpr int64_t kCountMax = int64_t{1} << 30;
inline constexpr int64_t kBigMax = int64_t{1} << 52;
inline constexpr int64_t kTimeMax = int64_t{1} << 62;  // ns: the year 2116, far from any overflow.

inline std::string dump(const auto& json, int indent = -1) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

// Discarded if it is not JSON. Leaves out what is nested deeper than any message.
inline Json parse(std::string_view text) {
  const auto shallow = [](int depth, Json::parse_event_t, const Json&) { return depth <= 8; };
  return Json::parse(text.begin(), text.end(), shallow, /*allow_exceptions=*/false);
}

inline std::optional<int64_t> integer_of(const Json& json) {
  const bool huge = json.is_number_unsigned() && !std::in_range<int64_t>(json.get<uint64_t>());
  return json.is_number_integer() && !huge ? std::optional(json.get<int64_t>()) : std::nullopt;
}

// For objects of other programs: a field that is absent or of another type is empty.
inline std::string text_at(const auto& object, const char* key) {
  const auto found = object.find(key);  // The end too if it is no object.
  return found != object.end() && found->is_string() ? found->template get<std::string>() : "";
}
inline int number_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  const auto number = found != object.end() ? integer_of(*found) : std::nullopt;
  return number && std::in_range<int>(*number) ? static_cast<int>(*number) : 0;
}
inline const Json& list_at(const Json& object, const char* key) {
  static const Json kNone = Json::array();
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : kNone;
}

// Valid UTF-8 of at most `bytes_max` bytes (at least 3); ends in "..." if it was cut.
inline std::string fitting_text(std::string_view raw, size_t bytes_max) {
  std::string text = valid_utf8(raw);
  if (text.size() <= bytes_max) return text;
  return std::string(utf8_prefix(text, bytes_max - std::min<size_t>(bytes_max, 3))) + "...";
}

template <typename T>
concept Optional = requires(T value) { value.emplace(); };
template <typename T>
concept List = requires(T value) { value.emplace_back(); };

// Passes the fields of a value that `walk` lists, else those that the overload of fields() for its
// type does.
void pass_fields(auto& archive, auto& value, const auto&... walk) {
  if constexpr (sizeof...(walk) == 0) {
    fields(archive, value);
  } else {
    (walk(archive, value), ...);
  }
}

void one_of(auto& archive, const char* key, auto& value, auto last) {
  archive.number(key, value, 0, static_cast<int64_t>(last));
}

class JsonWriter {
 public:
  // Cuts every text to `text_max` bytes, if that is given. dump() makes text valid UTF-8.
  explicit JsonWriter(size_t text_max = std::string::npos) : text_max_(text_max) {}

  // A text, flag, number or object, null for an unset optional, or a list of them. With `walk`,
  // objects whose fields it lists.
  void operator()(const char* key, const auto& value, const auto&... walk) {
    json_[key] = json_from(value, walk...);
  }
  // Omitted if unset, false or empty: for a field that older versions lack.
  template <typename T>
  void if_any(const char* key, const T& value, const auto&... walk) {
    if constexpr (requires { value.empty(); }) {
      if (!value.empty()) (*this)(key, value, walk...);
    } else {
      if (value) (*this)(key, value, walk...);
    }
  }
  // True if a field is written, or there is one to read. `any`: it has something to tell.
  bool has(const char* /*key*/, bool any) const { return any; }
  // A duration is a number of its ticks.
  template <typename T>
  void number(const char* key, const T& value, int64_t low, int64_t high) {
    if constexpr (Optional<T>) {
      put(key, {});
      if (value) number(key, *value, low, high);
    } else if constexpr (requires { value.count(); }) {
      put(key, std::clamp<int64_t>(value.count(), low, high));
    } else {
      put(key, std::clamp(static_cast<int64_t>(value), low, high));
    }
  }
  void numbers(const char* key, std::vector<int> values, size_t count_max) {
    values.resize(std::min(values.size(), count_max));
    put(key, std::move(values));
  }
  void word(const char* key, auto value, const auto& words) {
    put(key, words[static_cast<size_t>(value)]);
  }
  void put(const char* key, Json value) { json_[key] = std::move(value); }

  Json take() { return std::move(json_); }

 private:
  template <typename T, typename... Walk>
  Json json_from(const T& value, const Walk&... walk) const {
    if constexpr (Optional<T>) {
      return value ? json_from(*value, walk...) : Json();
    } else if constexpr (List<T>) {
      Json list = Json::array();
      for (const auto& element : value)
        list.push_back(json_from(element, walk...));
      return list;
    } else if constexpr (std::is_arithmetic_v<T>) {
      return value;
    } else if constexpr (sizeof...(Walk) == 0 && std::convertible_to<T, std::string_view>) {
      return text_max_ == std::string::npos ? Json(value) : Json(fitting_text(value, text_max_));
    } else {
      JsonWriter inner(text_max_);
      pass_fields(inner, value, walk...);
      return inner.take();
    }
  }

  size_t text_max_;
  Json json_ = Json::object();
};

enum class Absent { is_wrong, keeps_its_value };

class JsonReader {
 public:
  JsonReader(const Json& json, std::string& wrong, Absent absent = Absent::is_wrong)
      : json_(json), wrong_(wrong), absent_(absent) {
    if (!json_.is_object()) miss("it", "an object");
  }

  void operator()(const char* key, auto& value, const auto&... walk) {
    if (const Json* const found = find(key)) take(key, *found, value, walk...);
  }
  void if_any(const char* key, auto& value, const auto&... walk) {
    if (has(key)) (*this)(key, value, walk...);
  }
  template <typename T>
  void number(const char* key, T& value, int64_t low, int64_t high) {
    if (const Json* const found = find(key)) take_number(key, *found, value, low, high);
  }
  void numbers(const char* key, std::vector<int>& values, size_t count_max) {
    each(key, count_max, [&](const Json& element) {
      take_number(key, element, values.emplace_back(), 0, kCountMax);
    });
  }
  template <typename Word>
  void word(const char* key, Word& value, const auto& words) {
    std::string text(words[static_cast<size_t>(value)]);
    (*this)(key, text);
    const auto known = std::ranges::find(words, text);
    if (known == words.end()) return miss(key, "a word that this muster knows");
    value = static_cast<Word>(known - words.begin());
  }

  // Visits the elements of a list of at most `count_max`; stops at the first error.
  template <typename Each>
  void each(const char* key, size_t count_max, Each&& visit) {
    const Json* const list = find(key);
    if (list == nullptr) return;
    if (!list->is_array() || list->size() > count_max) return miss(key, "a list within its limit");
    for (const Json& element : *list) {
      if (!wrong_.empty()) return;
      visit(element);
    }
  }

  bool has(const char* key, bool /*any*/ = true) const { return json_.contains(key); }
  // Null: the field is absent.
  const Json* find(const char* key) {
    if (const auto found = json_.find(key); found != json_.end()) return &*found;
    if (absent_ == Absent::is_wrong) miss(key, "present");
    return nullptr;
  }
  void miss(std::string_view key, std::string_view expected) {
    if (wrong_.empty()) wrong_ = fmt::format("{} is not {}", key, expected);
  }

 private:
  template <typename T, typename... Walk>
  void take(const char* key, const Json& json, T& value, const Walk&... walk) {
    if constexpr (Optional<T>) {
      if (!json.is_null()) take(key, json, value.emplace(), walk...);
    } else if constexpr (List<T>) {
      if (!json.is_array()) return miss(key, "a list");
      for (const Json& element : json)
        take(key, element, value.emplace_back(), walk...);
    } else if constexpr (sizeof...(Walk) == 0 && std::same_as<T, std::string>) {
      if (!json.is_string()) return miss(key, "a string");
      value = json.get<T>();
    } else if constexpr (std::same_as<T, bool>) {
      if (!json.is_boolean()) return miss(key, "true or false");
      value = json.get<T>();
    } else if constexpr (std::floating_point<T>) {
      if (!json.is_number()) return miss(key, "a number");
      value = json.get<T>();
    } else if constexpr (std::integral<T>) {
      constexpr uint64_t kLast = std::numeric_limits<T>::max();
      take_number(key, json, value, int64_t{std::numeric_limits<T>::min()},
                  static_cast<int64_t>(std::min<uint64_t>(kLast, kWholeMax)));
    } else {
      if (!json.is_object()) return miss(key, "an object");
      JsonReader inner(json, wrong_, absent_);
      pass_fields(inner, value, walk...);
    }
  }
  template <typename T>
  void take_number(const char* key, const Json& json, T& value, int64_t low, int64_t high) {
    if constexpr (Optional<T>) {
      if (!json.is_null()) take_number(key, json, value.emplace(), low, high);
    } else {
      const std::optional<int64_t> whole = integer_of(json);
      if (!whole || *whole < low || *whole > high) return miss(key, "a whole number in range");
      value = static_cast<T>(*whole);
    }
  }

  static constexpr uint64_t kWholeMax = std::numeric_limits<int64_t>::max();
  const Json& json_;
  std::string& wrong_;
  Absent absent_;
};

template <typename Archive>
inline constexpr bool kReads = std::same_as<std::remove_cvref_t<Archive>, JsonReader>;

// A whole value as JSON. `text_max` and `wrong`: as above.
template <typename T>
Json json_of(const T& value, size_t text_max = std::string::npos) {
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

}  // namespace muster::wire

// In a function fields(auto& a, auto& m): passes these members of `m`, each under its own name.
#define MUSTER_FIELD(member) a(#member, m.member);
#define MUSTER_FIELDS(...) NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(MUSTER_FIELD, __VA_ARGS__))
