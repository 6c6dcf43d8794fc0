#include "rendezvous/store/key_table.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster {
namespace {

using Names = std::vector<std::string>;
using Views = std::vector<std::string_view>;

std::string table_key(size_t i) {
  return "/default_pg/0//cpu//0/" + std::to_string(i);
}

Names in_order(const KeyTable& table) {
  Names names;
  for (const KeyTable::Entry* entry = table.oldest(); entry != nullptr; entry = entry->after())
    names.emplace_back(entry->name());
  return names;
}

void put(KeyTable& table, std::string_view name, std::string_view value = "") {
  bool added = false;
  table.find_or_add(name, added).value = value;
}

TEST(KeyTable, FindsAddedKeysAndNoOthers) {
  KeyTable table(1);
  EXPECT_EQ(table.find("a"), nullptr);
  put(table, "a", "1");
  put(table, "", "the empty name is one, too");
  put(table, std::string_view("a\0b", 3), "2");
  ASSERT_NE(table.find("a"), nullptr);
  EXPECT_EQ(table.find("a")->value, "1");
  EXPECT_EQ(table.find("")->value, "the empty name is one, too");
  EXPECT_EQ(table.find(std::string_view("a\0b", 3))->value, "2");
  EXPECT_EQ(table.find("b"), nullptr);
  EXPECT_EQ(table.find("aa"), nullptr);
  EXPECT_EQ(table.size(), 3u);
}

TEST(KeyTable, ReportsWhetherItAddedAKey) {
  KeyTable table(1);
  bool added = false;
  KeyTable::Entry& first = table.find_or_add("a", added);
  EXPECT_TRUE(added);
  EXPECT_EQ(&table.find_or_add("a", added), &first);
  EXPECT_FALSE(added);
}

TEST(KeyTable, DoesNotFindAnErasedKeyThatItFoundLast) {
  KeyTable table(1);
  bool added = false;
  table.find_or_add("a", added);
  ASSERT_NE(table.find("a"), nullptr);
  table.erase(*table.find("a"));
  EXPECT_EQ(table.find("a"), nullptr);
  table.find_or_add("a", added);
  EXPECT_TRUE(added);
}

TEST(KeyTable, KeepsEntriesInPlaceWhileItGrows) {
  KeyTable table(2);
  put(table, table_key(0), "first");
  const KeyTable::Entry* const first = table.find(table_key(0));
  for (size_t i = 1; i < 10000; i++)
    put(table, table_key(i));
  EXPECT_EQ(table.find(table_key(0)), first);
  EXPECT_EQ(first->value, "first");
  EXPECT_EQ(table.size(), 10000u);
}

TEST(KeyTable, ListsInOrderOfCreationAfterErasures) {
  KeyTable table(3);
  for (const char* name : {"d", "a", "c", "b", "e"})
    put(table, name);
  for (const char* name : {"d", "c", "e"})  // The oldest, one in the middle, the newest.
    table.erase(*table.find(name));
  put(table, "d");
  EXPECT_EQ(in_order(table), (Names{"a", "b", "d"}));
  for (const char* name : {"a", "b", "d"})
    table.erase(*table.find(name));
  EXPECT_EQ(in_order(table), Names{});
  EXPECT_EQ(table.size(), 0u);
}

TEST(KeyTable, FindAllAgreesWithFind) {
  KeyTable table(4);
  Names names;
  for (size_t i = 0; i < 1000; i++) {
    names.push_back(table_key(i));
    if (i % 3 != 0) put(table, names.back(), std::to_string(i));
  }
  const Views views(names.begin(), names.end());
  size_t expected = 0;
  table.find_all(views, [&](size_t i, const KeyTable::Entry* entry) {
    EXPECT_EQ(i, expected++);
    EXPECT_EQ(entry, table.find(views[i]));
    return true;
  });
  EXPECT_EQ(expected, views.size());
}

TEST(KeyTable, FindAllStopsIfTheCallbackReturnsFalse) {
  KeyTable table(5);
  const Views views(100, "nowhere");
  size_t calls = 0;
  table.find_all(views, [&](size_t i, const KeyTable::Entry* entry) {
    EXPECT_EQ(entry, nullptr);
    calls++;
    return i < 40;
  });
  EXPECT_EQ(calls, 41u);
}

TEST(KeyTable, AddsEveryOtherNameOfAList) {
  KeyTable table(6);
  put(table, table_key(3), "old");
  std::vector<std::string> fields;
  for (uint8_t which = 0; which < 200; which++) {
    fields.push_back(table_key(which % 150));  // The last 50 names are repeated.
    fields.push_back("value " + std::to_string(which));
  }
  const Views views(fields.begin(), fields.end());
  std::set<std::string> added;
  table.find_or_add_all(views, [&](size_t i, KeyTable::Entry& entry, bool is_new) {
    ASSERT_EQ(entry.name(), fields[i]);
    ASSERT_EQ(is_new, fields[i] != table_key(3) && added.insert(fields[i]).second);
    entry.value = fields[i + 1];
  });
  EXPECT_EQ(table.size(), 150u);
  EXPECT_EQ(table.find(table_key(2))->value, "value 152");
  EXPECT_EQ(table.find(table_key(149))->value, "value 149");
  EXPECT_EQ(table.find("value 3"), nullptr);
}

// The hole that an erased name leaves must not end the search for names probed past it.
RC_GTEST_PROP(KeyTable, AgreesWithAMap, (uint64_t seed)) {
  KeyTable table(seed);
  std::map<std::string, std::string> model;
  const auto steps = *rc::gen::container<std::vector<std::pair<uint8_t, uint8_t>>>(
      rc::gen::pair(rc::gen::inRange<uint8_t>(0, 4), rc::gen::inRange<uint8_t>(0, 48)));
  for (const auto& [what, which] : steps) {
    const std::string name = table_key(which);
    if (what == 0 && model.erase(name) > 0) {
      table.erase(*table.find(name));
    } else if (what > 0) {
      model[name] = std::to_string(what);
      put(table, name, model[name]);
    }
    RC_ASSERT(table.size() == model.size());
  }
  for (uint8_t which = 0; which < 48; which++) {
    const auto expected = model.find(table_key(which));
    const KeyTable::Entry* const entry = table.find(table_key(which));
    RC_ASSERT((entry != nullptr) == (expected != model.end()));
    if (entry != nullptr) RC_ASSERT(entry->value == expected->second);
  }
  RC_ASSERT(in_order(table).size() == model.size());
}

}  // namespace
}  // namespace muster
