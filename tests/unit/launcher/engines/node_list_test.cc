#include "launcher/engines/node_list.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "rendezvous/base/task_variables.h"

namespace muster {
namespace {

TEST(SlurmNodeList, BeginsWithTheFirstNumberOfEachBracket) {
  const std::map<std::string, std::string> cases{
      {"", ""},
      {" node1 ", "node1"},
      {"node1,node[2-3]", "node1"},
      {"node[9]", "node9"},
      {"node[007-012]", "node007"},
      {"node[3,1-2]", "node3"},
      {"[1-2]", "1"},
      {"a-b[1-2]-c,d", "a-b1-c"},
      {"r[1-2]n[3,4]s[5]", "r1n3s5"},
      {"r[1-2],r[3-4]", "r1"},
      {"a[1-2]b,c[3]", "a1b"},
      {",a", ""},
  };
  for (const auto& [list, host] : cases)
    EXPECT_EQ(first_host_of(list), host) << list;
}

// Such lists come from an environment that was cut off or is not Slurm's.
TEST(SlurmNodeList, HasAFirstHostWhateverItsBrackets) {
  const std::map<std::string, std::string> cases{
      {"n[1-2", "n1"},  {"n]1", "n1"},    {"n[]", "n"}, {"n[-1]", "n"},
      {"n[,1]x", "nx"}, {"n[[1]]", "n1"}, {"n[", "n"}};
  for (const auto& [list, host] : cases)
    EXPECT_EQ(first_host_of(list), host) << list;
}

TEST(SlurmNodeList, KnowsTheOrderOfItsHosts) {
  const std::string list = "r[1-2]n[07-08]x,login,gpu[9-11]";
  const std::vector<std::string> hosts{"r1n07x", "r1n08x", "r2n07x", "r2n08x",
                                       "login",  "gpu9",   "gpu10",  "gpu11"};
  for (size_t i = 0; i < hosts.size(); ++i)
    EXPECT_EQ(position_of_host(list, hosts[i]), static_cast<int>(i)) << hosts[i];
  EXPECT_EQ(position_of_host(list, "gpu12"), std::nullopt);
  for (const char* damaged :
       {"", "n[1-", "n[x]", "n[2-1]", "n[]", "n[1-99999999999]", "n[1-9999999]"})
    EXPECT_EQ(position_of_host(damaged, "n1"), std::nullopt) << damaged;
}

RC_GTEST_PROP(SlurmNodeList, HasTheHostThatItWasMadeFrom, ()) {
  const auto word = rc::gen::container<std::string>(rc::gen::element('a', 'z', '-', '.', '0', '9'));
  std::string list, host;
  for (const auto& [name, number] : *rc::gen::container<std::vector<std::pair<std::string, int>>>(
           rc::gen::pair(word, rc::gen::inRange(0, 1000)))) {
    const std::string digits = fmt::format("{:03}", number);
    list += name + "[" + digits + *rc::gen::element("", "-999", ",7", "-100,200-300,1") + "]";
    host += name + digits;
  }
  list += *rc::gen::element("", ",", ",b", ",b[1-2]", ",[");
  RC_ASSERT(first_host_of(list) == host);
}

int tasks_on_node(const std::string& counts, int node) {
  return slurm_tasks_on_node(counts, node).value_or(0);
}

// Returns the number of tasks of each node, up to the first that the list does not have.
std::vector<int> tasks_of_all(const std::string& counts) {
  std::vector<int> tasks;
  while (const int count = tasks_on_node(counts, static_cast<int>(tasks.size())))
    tasks.push_back(count);
  return tasks;
}

TEST(SlurmTaskCounts, GiveEachNodeItsOwn) {
  using Tasks = std::vector<int>;
  EXPECT_EQ(tasks_of_all("8"), Tasks{8});
  EXPECT_EQ(tasks_of_all("2(x3),1"), (Tasks{2, 2, 2, 1}));
  EXPECT_EQ(tasks_of_all("1,2(x1),3(x2)"), (Tasks{1, 2, 3, 3}));
  EXPECT_EQ(tasks_on_node("0,3", 0), 0);
  EXPECT_EQ(tasks_on_node("0,3", 1), 3);
  EXPECT_EQ(tasks_on_node("2(x2147483647)", 2147483646), 2);
  EXPECT_EQ(tasks_on_node("2(x2147483647)", 2147483647), 0);
}

TEST(SlurmTaskCounts, AreUnknownIfTheNumberIsJunk) {
  for (const char* counts : {"", ",", "x", "-1", "(x2)", "x(x2)", "2147483648", "1.5", ",4", "2(x3",
                             "2(x0)", "2(x)", "2(xa)", "2(x2)z"})
    EXPECT_EQ(tasks_on_node(counts, 0), 0) << counts;
  EXPECT_EQ(tasks_on_node("1,x,3", 2), 0);
  EXPECT_EQ(tasks_on_node("1,x,3", 0), 1);
  EXPECT_EQ(tasks_on_node("1,2", -1), 0);
}

RC_GTEST_PROP(SlurmTaskCounts, ComeBackFromTheirShortForm, ()) {
  const auto runs = *rc::gen::container<std::vector<std::pair<int, int>>>(
      rc::gen::pair(rc::gen::inRange(1, 200), rc::gen::inRange(1, 4)));
  std::string counts;
  std::vector<int> tasks;
  for (const auto& [count, nodes] : runs) {
    counts += counts.empty() ? "" : ",";
    counts += nodes == 1 ? fmt::format("{}", count) : fmt::format("{}(x{})", count, nodes);
    tasks.insert(tasks.end(), static_cast<size_t>(nodes), count);
  }
  RC_ASSERT(tasks_of_all(counts) == tasks);
}

}  // namespace
}  // namespace muster
