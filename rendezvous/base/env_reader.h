// Reads environment variables that hold a number or a truth value, and keeps the first error. Pure
// except for the look-up function that it is given.
#pragma once

#include <climits>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/text.h"

namespace muster {

// Returns nullopt if not set; an empty value ("RANK=") is set.
using EnvironmentLookup = std::function<std::optional<std::string>(std::string_view name)>;

// Accepts digits only, as every launcher writes numbers.
inline std::optional<int> plain_number(std::string_view text) {
  const std::optional<int> number = whole_number<int>(text);
  return number.value_or(-1) >= 0 ? number : std::nullopt;
}

class EnvReader {
 public:
  explicit EnvReader(const EnvironmentLookup& lookup) : lookup_(lookup) {}

  std::optional<std::string> text(std::string_view name) const { return lookup_(name); }
  bool has(std::string_view name) const { return lookup_(name).has_value(); }

  // Returns nullopt if not set or invalid, and keeps the error.
  std::optional<int> number(std::string_view name, int min, int max = INT_MAX) {
    const std::optional<std::string> value = lookup_(name);
    if (!value) return std::nullopt;
    const std::optional<int> digits = plain_number(*value);
    if (digits && *digits >= min && *digits <= max) return digits;
    complain(max == INT_MAX
                 ? fmt::format("{}={} is not a number of at least {}", name, *value, min)
                 : fmt::format("{}={} is not a number from {} to {}", name, *value, min, max));
    return std::nullopt;
  }

  std::optional<bool> truth(std::string_view name) {
    const std::optional<std::string> value = lookup_(name);
    if (!value) return std::nullopt;
    if (*value == "True" || *value == "true" || *value == "1") return true;
    if (*value == "False" || *value == "false" || *value == "0" || value->empty()) return false;
    complain(fmt::format("{}={} is neither True nor False", name, *value));
    return std::nullopt;
  }

  void complain(std::string what) {
    if (!complaint_) complaint_ = std::move(what);
  }
  // Complains as in "RANK=4 is not below WORLD_SIZE=4".
  void demand_below(std::string_view name, int value, std::string_view bound_name, int bound) {
    if (value >= bound)
      complain(fmt::format("{}={} is not below {}={}", name, value, bound_name, bound));
  }

  const std::optional<std::string>& complaint() const { return complaint_; }

 private:
  const EnvironmentLookup& lookup_;
  std::optional<std::string> complaint_;
};

}  // namespace muster
