#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "agent/placement/cpu_topology.h"

namespace muster {
namespace {

TEST(CpuSet, IsSortedWithoutRepetitions) {
  EXPECT_EQ(parse_cpu_list("8-9,0,2-3,1,2-4,9"), (CpuSet{0, 1, 2, 3, 4, 8, 9}));
  EXPECT_EQ(parse_cpu_list("7-7,7"), CpuSet{7});
  EXPECT_EQ(parse_cpu_list("007"), CpuSet{7});
}

TEST(CpuSet, MayBeEmptyOrHaveSpaceAroundIt) {
  for (const char* text : {"", "\n", " \t\r\n"})
    EXPECT_EQ(parse_cpu_list(text), CpuSet{}) << text;
  EXPECT_EQ(parse_cpu_list(" \t0-1\r\n"), (CpuSet{0, 1}));
}

TEST(CpuSet, EndsAtTheLargestCpuOfAnyKernel) {
  EXPECT_EQ(parse_cpu_list("65535"), CpuSet{65535});
  EXPECT_EQ(parse_cpu_list("0-65535").value().size(), 65536u);
  for (const char* text :
       {"65536", "65535-65536", "2147483648", "4294967296", "0-18446744073709551616"})
    EXPECT_EQ(parse_cpu_list(text), std::nullopt) << text;
}

TEST(CpuSet, IsNotReadFromAListThatTheKernelWouldNotWrite) {
  for (const char* text :
       {",",    ",1",   "1,",   "1,,2", "-",   "-1",  "1-", "1--2", "1-2-3",   "2-1", "+1",
        "1-+2", "1 ,2", "1, 2", "1 2",  "0x1", "1.0", "a",  "1a",   "0-3:1/2", "1;2", "١"})
    EXPECT_EQ(parse_cpu_list(text), std::nullopt) << text;
  EXPECT_EQ(parse_cpu_list(std::string_view("1\0,2", 4)), std::nullopt);
}

TEST(CpuSet, IsReadOnlyUpToTheEndOfItsText) {
  EXPECT_EQ(parse_cpu_list(std::string_view("0-12,3").substr(0, 3)), (CpuSet{0, 1}));
}

TEST(CpuSet, IsWrittenInTheFewestItems) {
  EXPECT_EQ(format_cpu_list({}), "");
  EXPECT_EQ(format_cpu_list({0}), "0");
  EXPECT_EQ(format_cpu_list({0, 1}), "0-1");
  EXPECT_EQ(format_cpu_list({0, 2, 4}), "0,2,4");
  EXPECT_EQ(format_cpu_list({0, 1, 2, 9, 11, 12, 65535}), "0-2,9,11-12,65535");
}

rc::Gen<CpuSet> any_cpu_set() {
  const auto cpus = rc::gen::container<std::vector<int>>(
      rc::gen::oneOf(rc::gen::inRange(0, 24), rc::gen::inRange(65'500, 65'536)));
  return rc::gen::map(cpus, [](const std::vector<int>& list) {
    const std::set<int> set(list.begin(), list.end());
    return CpuSet(set.begin(), set.end());
  });
}

RC_GTEST_PROP(CpuSet, ComesBackFromItsText, ()) {
  const CpuSet cpus = *any_cpu_set();
  RC_ASSERT(parse_cpu_list(format_cpu_list(cpus)) == cpus);
}

RC_GTEST_PROP(CpuSet, IsTheUnionOfItsItems, ()) {
  const auto ranges = *rc::gen::container<std::vector<std::pair<int, int>>>(
      rc::gen::pair(rc::gen::inRange(0, 50), rc::gen::inRange(0, 5)));
  std::string text;
  std::set<int> expected;
  for (const auto& [first, more] : ranges) {
    text += (text.empty() ? "" : ",") + std::to_string(first);
    if (more > 0 || first % 2 == 0) text += "-" + std::to_string(first + more);
    for (int cpu = first; cpu <= first + more; ++cpu)
      expected.insert(cpu);
  }
  RC_ASSERT(parse_cpu_list(text) == CpuSet(expected.begin(), expected.end()));
}

RC_GTEST_PROP(CpuSet, MeetsAnotherInTheCpusThatBothHave, ()) {
  const CpuSet a = *any_cpu_set(), b = *any_cpu_set();
  CpuSet expected;
  for (const int cpu : a) {
    if (std::ranges::find(b, cpu) != b.end()) expected.push_back(cpu);
  }
  RC_ASSERT(intersect_cpus(a, b) == expected);
  RC_ASSERT(intersect_cpus(b, a) == expected);
  RC_ASSERT(intersect_cpus(a, a) == a);
}

}  // namespace
}  // namespace muster
