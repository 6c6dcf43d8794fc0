#include "agent/report/wire_json.h"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "tests/unit/agent/report/report_generators.h"
#include "tests/wait_for.h"

namespace muster {
namespace {

using wire::Json;
using wire::JsonReader;
using wire::JsonWriter;

enum class Fruit { apple, pear, plum };

// Has one field of every kind.
struct Parcel {
  std::string text;
  bool flag = false;
  int number = 0;
  Fruit fruit = Fruit::apple;
  std::optional<std::string> maybe;
  std::string inner;
  std::vector<int> ranks;
  std::chrono::nanoseconds span{0};

  friend bool operator==(const Parcel&, const Parcel&) = default;
};

void parcel_fields(auto& a, Like<Parcel> auto& parcel) {
  a("text", parcel.text);
  a("flag", parcel.flag);
  a.number("number", parcel.number, -5, 1000);
  wire::one_of(a, "fruit", parcel.fruit, Fruit::plum);
  const auto text = [](auto& inner, auto& value) { inner("t", value); };
  a("maybe", parcel.maybe, text);
  a("object", parcel.inner, text);
  a.numbers("ranks", parcel.ranks, 3);
  a.number("span", parcel.span, 0, 1000);
}

Json packed(const Parcel& parcel, size_t text_max = 100) {
  JsonWriter writer(text_max);
  parcel_fields(writer, parcel);
  return writer.take();
}

struct Unpacked {
  Parcel parcel;
  std::string wrong;
};

Unpacked unpacked(const Json& json) {
  Unpacked result;
  JsonReader reader(json, result.wrong);
  parcel_fields(reader, result.parcel);
  result.wrong = field_of(result.wrong);
  return result;
}

Parcel full_parcel() {
  return {"téxt\n",
          true,
          -5,
          Fruit::plum,
          "",
          "inside",
          {0, 7, 1 << 30},
          std::chrono::nanoseconds{1000}};
}

TEST(WireJson, ComesBackAsItWasWritten) {
  for (const Parcel& parcel : {Parcel{}, full_parcel()}) {
    const Unpacked back = unpacked(Json::parse(wire::dump(packed(parcel))));
    EXPECT_EQ(back.wrong, "");
    EXPECT_EQ(back.parcel, parcel);
  }
}

TEST(WireJson, IsOneCompactObject) {
  EXPECT_EQ(wire::dump(packed(full_parcel())),
            R"({"flag":true,"fruit":2,"maybe":{"t":""},"number":-5,"object":{"t":"inside"},)"
            R"("ranks":[0,7,1073741824],"span":1000,"text":"téxt\n"})");
  EXPECT_EQ(wire::dump(packed(Parcel{})),
            R"({"flag":false,"fruit":0,"maybe":null,"number":0,"object":{"t":""},"ranks":[],)"
            R"("span":0,"text":""})");
}

TEST(WireJson, IsWrittenWithinItsLimits) {
  Parcel parcel = full_parcel();
  parcel.text = parcel.inner = "1234567";
  parcel.maybe = "123456";
  parcel.number = 1001;
  parcel.ranks = {1, 2, 3, 4};
  parcel.span = std::chrono::nanoseconds{-1};
  const Unpacked back = unpacked(packed(parcel, 6));
  EXPECT_EQ(back.wrong, "");
  EXPECT_EQ(back.parcel, (Parcel{"123...",
                                 true,
                                 1000,
                                 Fruit::plum,
                                 "123456",
                                 "123...",
                                 {1, 2, 3},
                                 std::chrono::nanoseconds{0}}));
}

TEST(WireJson, NamesAMissingField) {
  const Json whole = packed(full_parcel());
  for (const auto& [key, value] : whole.items()) {
    Json json = whole;
    json.erase(key);
    EXPECT_EQ(unpacked(json).wrong, key);
  }
  EXPECT_EQ(unpacked(Json::object()).wrong, "text");
}

struct WrongValue {
  const char* key;
  std::vector<Json> values;
};

TEST(WireJson, NamesTheFieldThatHasAWrongTypeOrRange) {
  const Json whole = packed(full_parcel());
  const uint64_t huge = uint64_t{1} << 63;
  const std::vector<WrongValue> cases = {
      {"text", {Json(), 1, true, Json::array(), Json::object()}},
      {"flag", {Json(), 0, 1, "true"}},
      {"number", {Json(), "1", 1.0, true, -6, 1001, huge, ~uint64_t{0}, 1e300}},
      {"fruit", {Json(), -1, 3, "plum"}},
      {"object", {Json(), 1, "t", Json::array()}},
      {"ranks", {Json(), 1, Json::object()}},
      {"ranks",
       {Json::array({-1}), Json::array({"1"}), Json::array({1.0}), Json::array({huge}),
        Json::array({~uint64_t{0}}), Json::array({wire::kCountMax + 1}), Json::array({nullptr}),
        Json::array({1, 2, 3, 4})}},
      {"span", {Json(), -1, 1001, 1.5}},
  };
  for (const WrongValue& one : cases) {
    for (const Json& value : one.values) {
      Json json = whole;
      json[one.key] = value;
      EXPECT_EQ(unpacked(json).wrong, one.key) << json;
    }
  }
}

TEST(WireJson, KeepsTheNameOfTheFirstWrongField) {
  Json json = packed(full_parcel());
  json["number"] = "x";
  json["ranks"] = "x";
  json["maybe"] = 1;
  EXPECT_EQ(unpacked(json).wrong, "number");
}

TEST(WireJson, NamesTheWrongFieldOfAnInnerObject) {
  Json json = packed(full_parcel());
  json["maybe"] = Json::object();
  EXPECT_EQ(unpacked(json).wrong, "t");
  json["maybe"] = Json::array();
  EXPECT_EQ(unpacked(json).wrong, "maybe");
}

TEST(WireJson, IgnoresUnknownFields) {
  Json json = packed(full_parcel());
  json["later"] = Json{{"x", 1}};
  EXPECT_EQ(unpacked(json).wrong, "");
  EXPECT_EQ(unpacked(json).parcel, full_parcel());
}

TEST(WireJson, RefusesWhatIsNoObject) {
  for (const char* text : {"null", "1", "\"text\"", "[]", "[{\"text\":\"x\"}]", "true"})
    EXPECT_EQ(unpacked(Json::parse(text)).wrong, "it") << text;
}

TEST(WireJson, KeepsTheValuesOfAbsentFieldsIfTheyMayBeAbsent) {
  std::string wrong;
  const Json json = {{"number", 7}};
  JsonReader reader(json, wrong, wire::Absent::keeps_its_value);
  Parcel parcel;
  parcel.text = "as before";
  parcel_fields(reader, parcel);
  EXPECT_EQ(wrong, "");
  Parcel expected;
  expected.text = "as before";
  expected.number = 7;
  EXPECT_EQ(parcel, expected);
}

TEST(WireJson, LeavesOutWhatIsNestedTooDeep) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_EQ(wire::parse(R"({"a":)" + deep + R"(,"b":1})").at("b"), 1);
  EXPECT_LT(wire::dump(wire::parse(deep)).size(), 100u);
}

TEST(WireJson, ParsesAnObjectOfManyKeysInLinearTime) {
  std::string text = "{\"0\":0";
  for (int i = 1; text.size() < (1 << 20); ++i)
    text += fmt::format(",\"{}\":0", i);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(wire::parse(text + "}").is_object());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, test::within(std::chrono::milliseconds(200)));
}

TEST(WireJson, StopsAListAtItsFirstError) {
  std::string wrong;
  const Json json = {{"list", {1, 2, "x", 4}}};
  JsonReader reader(json, wrong);
  std::vector<Json> seen;
  reader.each("list", 4, [&](const Json& element) {
    if (!element.is_number()) return reader.miss("element", "a number");
    seen.push_back(element);
  });
  EXPECT_EQ(wrong, "element is not a number");
  EXPECT_EQ(seen, (std::vector<Json>{1, 2}));
  reader.each("list", 4, [&](const Json&) { ADD_FAILURE() << "after an error"; });
}

TEST(WireJson, CutsTextAtACharacterAndSaysSo) {
  EXPECT_EQ(wire::fitting_text("123456", 6), "123456");
  EXPECT_EQ(wire::fitting_text("1234567", 6), "123...");
  EXPECT_EQ(wire::fitting_text("12ééé", 6), "12...");
  EXPECT_EQ(wire::fitting_text("", 0), "");
  EXPECT_EQ(wire::fitting_text("a\xff", 4), "a\xEF\xBF\xBD");
  EXPECT_EQ(wire::fitting_text("ab\xff", 4), "a...");
}

RC_GTEST_PROP(WireJson, HoldsValidTextOfTheGivenLength, ()) {
  const std::string raw = *any_output();
  const size_t bytes_max = *rc::gen::inRange<size_t>(3, 40);
  const std::string text = wire::fitting_text(raw, bytes_max);
  RC_ASSERT(text.size() <= bytes_max);
  RC_ASSERT(valid_utf8(text) == text);
  RC_ASSERT(text == valid_utf8(raw) || text.ends_with("..."));
  RC_ASSERT(Json::parse(wire::dump(Json(text))) == Json(text));
}

}  // namespace
}  // namespace muster
