#include "worker_lib/fields.h"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

TEST(WorkerFields, SurviveEncoding) {
  const std::vector<std::vector<std::string>> lists{
      {}, {""}, {"", ""}, {"a:b", "1:", std::string("\0\n", 2)}, {std::string(5000, 'x'), "end"}};
  for (const auto& list : lists)
    EXPECT_EQ(decode_fields(encode_fields(list)), list);
}

TEST(WorkerFields, RefuseMalformedText) {
  for (const char* text : {":", "1", "x:", "2:a", "-1:a", "1:ab", "18446744073709551616:", " 1:a"})
    EXPECT_EQ(decode_fields(text), std::nullopt) << text;
}

}  // namespace
}  // namespace muster::worker
