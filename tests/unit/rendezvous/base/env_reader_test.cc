#include "rendezvous/base/env_reader.h"

#include <climits>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

EnvironmentLookup one_variable(const std::string& value) {
  return [value](std::string_view name) {
    return name == "SET" ? std::optional(value) : std::nullopt;
  };
}

std::string complaint_of(const std::string& value, const std::function<void(EnvReader&)>& read) {
  const EnvironmentLookup lookup = one_variable(value);
  EnvReader reader(lookup);
  read(reader);
  return reader.complaint().value_or("");
}

TEST(EnvReader, APlainNumberIsDigitsOnly) {
  EXPECT_EQ(plain_number("0"), 0);
  EXPECT_EQ(plain_number("007"), 7);
  EXPECT_EQ(plain_number("2147483647"), INT_MAX);
  for (const char* text : {"", " 1", "1 ", "+1", "-1", "-0x1", "1.0", "1e3", "0x10", "2147483648",
                           "99999999999999999999", "one"})
    EXPECT_EQ(plain_number(text), std::nullopt) << text;
}

TEST(EnvReader, ANumberOutsideItsBoundsIsAnError) {
  const auto between_2_and_5 = [](EnvReader& env) { env.number("SET", 2, 5); };
  EXPECT_EQ(complaint_of("2", between_2_and_5), "");
  EXPECT_EQ(complaint_of("5", between_2_and_5), "");
  EXPECT_EQ(complaint_of("1", between_2_and_5), "SET=1 is not a number from 2 to 5");
  EXPECT_EQ(complaint_of("6", between_2_and_5), "SET=6 is not a number from 2 to 5");
  EXPECT_EQ(complaint_of("", [](EnvReader& env) { env.number("SET", 1); }),
            "SET= is not a number of at least 1");
  const EnvironmentLookup lookup = one_variable("5");
  EnvReader reader(lookup);
  EXPECT_EQ(reader.number("SET", 0), 5);
  EXPECT_EQ(reader.number("SET", 6), std::nullopt);
}

TEST(EnvReader, TruthAcceptsTheSpellingsThatLaunchersWrite) {
  const std::vector<std::pair<const char*, std::optional<bool>>> cases{
      {"True", true}, {"true", true}, {"1", true},  {"False", false}, {"false", false},
      {"0", false},   {"", false},    {"TRUE", {}}, {"yes", {}},      {"2", {}}};
  for (const auto& [text, truth] : cases) {
    const EnvironmentLookup lookup = one_variable(text);
    EnvReader reader(lookup);
    EXPECT_EQ(reader.truth("SET"), truth) << text;
    EXPECT_EQ(reader.complaint().has_value(), !truth.has_value()) << text;
  }
  EXPECT_EQ(complaint_of("yes", [](EnvReader& env) { env.truth("SET"); }),
            "SET=yes is neither True nor False");
}

TEST(EnvReader, AVariableThatIsNotSetIsNoError) {
  EXPECT_EQ(complaint_of("junk",
                         [](EnvReader& env) {
                           EXPECT_FALSE(env.has("UNSET"));
                           EXPECT_EQ(env.text("UNSET"), std::nullopt);
                           EXPECT_EQ(env.number("UNSET", 1), std::nullopt);
                           EXPECT_EQ(env.truth("UNSET"), std::nullopt);
                         }),
            "");
}

TEST(EnvReader, TheFirstComplaintIsKept) {
  EXPECT_EQ(complaint_of("junk",
                         [](EnvReader& env) {
                           env.demand_below("RANK", 3, "WORLD_SIZE", 4);
                           env.demand_below("RANK", 4, "WORLD_SIZE", 4);
                           env.number("SET", 0);
                           env.complain("too late");
                         }),
            "RANK=4 is not below WORLD_SIZE=4");
}

}  // namespace
}  // namespace muster
