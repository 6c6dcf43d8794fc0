#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/hang/detector.h"
#include "agent/report/result_json.h"
#include "tests/unit/agent/report/report_samples.h"
#include "tests/unit/paths.h"

namespace muster {
namespace {

using Strings = std::vector<std::string>;

// Returns the first column of the table in this section of schema.md whose first head is `head`.
Strings documented(const std::string& section, const std::string& head) {
  std::ifstream file(paths::kSchema);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  text.erase(0, text.find("\n## " + section + "\n"));
  text.erase(0, text.find("\n| " + head + " |"));
  Strings names;
  for (size_t at = text.find("\n| `"); at < text.find("\n\n"); at = text.find("\n| `", at + 1)) {
    const size_t begin = at + std::string_view("\n| `").size();
    names.push_back(text.substr(begin, text.find('`', begin) - begin));
  }
  return names;
}

TEST(HangJson, HasTheFieldsThatTheSchemaNames) {
  Strings fields;
  const nlohmann::ordered_json json = hang_json(sample_hang());
  for (const auto& [key, value] : json.items())
    fields.push_back(key);
  EXPECT_EQ(fields, documented("Hangs", "field"));
}

TEST(HangJson, HasTheClassesThatTheSchemaNames) {
  Strings classes;
  for (int i = 0; i <= static_cast<int>(hang::Class::incomplete); ++i)
    classes.emplace_back(name_of(static_cast<hang::Class>(i)));
  EXPECT_EQ(classes, documented("Hangs", "class"));
}

}  // namespace
}  // namespace muster
