#include "launcher/option_table.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "agent/report/job_report.h"
#include "launcher/values/values.h"

namespace muster {
namespace {

using NameSet = std::set<std::string>;

template <typename Wanted>
NameSet names_where(const Wanted& wanted) {
  NameSet names;
  for (const OptionRow& row : option_rows()) {
    if (wanted(row)) names.emplace(row.name);
  }
  return names;
}

NameSet names_in(std::string_view text) {
  NameSet names;
  for (const std::string_view name : split(text, ' '))
    names.emplace(name);
  return names;
}

TEST(OptionRow, NamesEveryCauseThatAnExitCodeCanHave) {
  for (const std::string_view cause : exit_causes())
    EXPECT_NE(option_row("exit-code").help.find(cause), std::string_view::npos) << cause;
}

TEST(OptionRow, IsFoundByItsName) {
  for (const OptionRow& row : option_rows())
    EXPECT_EQ(&option_row(row.name), &row);
}

TEST(OptionRowDeathTest, IsNotLookedUpByAnyOtherName) {
  for (const char* name : {"", "nnode", "--nnodes", "NNODES", "m"})
    EXPECT_DEATH(option_row(name), "internal error: CHECK\\(the option table has this row\\)");
}

TEST(OptionRow, StandsWithTheOthersOfItsGroup) {
  std::vector<std::string> headings;
  for (const OptionRow& row : option_rows()) {
    if (headings.empty() || headings.back() != row.group) headings.emplace_back(row.group);
  }
  EXPECT_EQ(headings, (std::vector<std::string>{
                          "Workers", "What to run", "Restarting and stopping", "Hangs", "Output",
                          "GPUs and CPUs", "Nodes and rendezvous", "Losing and replacing nodes",
                          "Network and security", "Information", ""}));
  EXPECT_EQ(names_where([](const OptionRow& row) { return row.group.empty(); }),
            NameSet{"print-man"});
}

TEST(OptionRow, HasOneOfFourLetters) {
  std::map<char, std::string> letters;
  for (const OptionRow& row : option_rows()) {
    if (row.letter == 0) continue;
    EXPECT_TRUE(letters.emplace(row.letter, row.name).second) << row.name;
  }
  EXPECT_EQ(letters, (std::map<char, std::string>{
                         {'h', "help"}, {'m', "module"}, {'r', "redirects"}, {'t', "tee"}}));
}

TEST(OptionRow, TakesAValueUnlessItIsASwitch) {
  EXPECT_EQ(
      names_where([](const OptionRow& row) { return !row.takes_value(); }),
      names_in(
          "help keep-local-rank module no-iface-env no-python no-python-hook no-recorder "
          "pass-local-rank print-man record-kernels report-bindings requeue run-path standalone "
          "use-env version virtual-local-rank"));
  EXPECT_EQ(names_where([](const OptionRow& row) {
              return !row.takes_value() && !row.default_text.empty();
            }),
            NameSet{});
}

// A prefix that selects a flag of torchrun must not select one of these.
TEST(OptionRow, SaysWhetherTorchrunLacksIt) {
  EXPECT_EQ(
      names_where([](const OptionRow& row) { return row.traits.own; }),
      names_in("busy-timeout engine exit-code gpu-binding gpus hang-timeout iface keep-local-rank "
               "lease log-prefix max-membership-changes no-iface-env no-python-hook no-recorder "
               "notice-before on-hang pass-local-rank print-man python ranks rdzv-token-file "
               "record-kernels report-bindings requeue spares start-timeout stdin store-allow "
               "store-limit trace use-env version worker-port"));
}

TEST(OptionRow, SaysWhetherItAsksForAText) {
  EXPECT_EQ(names_where([](const OptionRow& row) { return row.traits.information; }),
            (NameSet{"help", "print-completion", "print-man", "version"}));
}

TEST(OptionRow, SaysWhetherAProgramHardlyEverHasIt) {
  EXPECT_EQ(
      names_where([](const OptionRow& row) { return row.traits.launchers_only; }),
      names_in("max-restarts nnodes nproc-per-node rdzv-backend rdzv-conf rdzv-endpoint rdzv-id"));
}

TEST(OptionRow, HasWordsToType) {
  std::map<std::string, std::vector<std::string_view>> words;
  for (const OptionRow& row : option_rows()) {
    if (!words_to_type(row).empty()) words[std::string(row.name)] = words_to_type(row);
  }
  EXPECT_EQ(words, (std::map<std::string, std::vector<std::string_view>>{
                       {"engine", {"auto", "none", "slurm", "mpi", "kubernetes"}},
                       {"event-log-handler", {"null", "console", "dynamic_rendezvous"}},
                       {"exit-code", {"culprit", "torchrun"}},
                       {"gpu-binding", {"shared", "exclusive"}},
                       {"hang-timeout", {"off"}},
                       {"logs-specs", {"default"}},
                       {"nproc-per-node", {"auto", "gpu", "cpu", "xpu"}},
                       {"numa-binding", {"node", "socket", "exclusive", "core-complex"}},
                       {"on-hang", {"auto", "report", "restart", "stop"}},
                       {"print-completion", {"bash", "zsh", "tcsh"}},
                       {"rdzv-backend", {"static", "c10d", "file", "etcd"}},
                       {"start-method", {"spawn", "fork", "forkserver"}},
                       {"stdin", {"none"}},
                       {"store-allow", {"any"}},
                   }));
}

TEST(OptionRow, TellsWordsFromPlaceholdersByTheirFirstLetter) {
  OptionRow row;
  using Views = std::vector<std::string_view>;
  for (const auto& [value, words] : std::map<std::string, Views>{
           {"", {}}, {"N", {}}, {"on", {"on"}}, {"N|on||Off|5|/PATH|x-y", {"on", "x-y"}}}) {
    row.value = value;
    EXPECT_EQ(words_to_type(row), words) << value;
  }
}

TEST(OptionRow, DefaultsToOneOfItsWordsIfItHasNoPlaceholder) {
  for (const OptionRow& row : option_rows()) {
    const std::vector<std::string_view> words = words_to_type(row);
    const auto alternatives = 1 + std::ranges::count(row.value, '|');
    if (std::ssize(words) != alternatives || row.default_text.empty()) continue;
    EXPECT_NE(std::ranges::find(words, row.default_text), words.end()) << row.name;
  }
}

}  // namespace
}  // namespace muster
