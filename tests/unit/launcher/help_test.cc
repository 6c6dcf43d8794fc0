#include "launcher/help.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/option_table.h"
#include "launcher/values/values.h"
#include "rendezvous/base/contract.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// All flags of torchrun 2.15; scripts that use one must keep working.
constexpr std::string_view kTorchrunFlags =
    "nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf standalone max-restarts "
    "monitor-interval start-method event-log-handler role module no-python run-path log-dir "
    "redirects tee log-line-prefix-template local-ranks-filter duplicate-stdout-filters "
    "duplicate-stderr-filters node-rank master-addr master-port local-addr logs-specs numa-binding "
    "signals-to-handle shutdown-timeout virtual-local-rank print-completion help";

TEST(OptionTable, HasEveryFlagOfTorchrun) {
  for (const std::string_view name : split(kTorchrunFlags, ' '))
    EXPECT_EQ(option_row(name).name, name);
}

TEST(OptionTable, NamesEachFlagOnce) {
  std::set<std::string> names;
  for (const OptionRow& row : option_rows()) {
    EXPECT_TRUE(names.emplace(row.name).second) << row.name;
    EXPECT_EQ(row.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz-"), std::string::npos);
    EXPECT_FALSE(row.help.empty()) << row.name;
    EXPECT_EQ(row.help.back(), '.') << row.name;
  }
}

TEST(OptionTable, DerivesVariablesFromNames) {
  EXPECT_EQ(option_row("nproc-per-node").variable(), "PET_NPROC_PER_NODE");
  EXPECT_EQ(option_row("tee").variable(), "PET_TEE");
  std::set<std::string> command_line_only;
  for (const OptionRow& row : option_rows()) {
    if (!row.traits.reads_variable) command_line_only.emplace(row.name);
  }
  EXPECT_EQ(command_line_only,
            std::set<std::string>({"help", "version", "print-completion", "print-man", "requeue",
                                   "logs-specs", "numa-binding", "use-env"}));
}

TEST(Wrapped, FillsLinesUpToTheWidth) {
  EXPECT_EQ(wrapped("aa bb cc", 2, 7), "  aa bb\n  cc\n");
  EXPECT_EQ(wrapped("aa bb cc", 2, 80), "  aa bb cc\n");
  EXPECT_EQ(wrapped("aaaaaaaa b", 0, 4), "aaaaaaaa\nb\n");
  EXPECT_EQ(wrapped("", 4, 10), "\n");
}

TEST(Help, FitsATerminal) {
  const std::string text = help_text();
  for (const std::string_view line : split(text, '\n')) {
    EXPECT_LE(line.size(), 80u) << line;
    EXPECT_FALSE(line.ends_with(' ')) << line;
  }
}

TEST(Help, ShowsEveryFlagWithItsValueAndDefault) {
  const std::string text = help_text();
  for (const OptionRow& row : option_rows()) {
    if (row.group.empty()) continue;
    const std::string heading =
        fmt::format("--{}{}{}\n", row.name, row.takes_value() ? " " : "", row.value);
    EXPECT_THAT(text, HasSubstr(heading));
    EXPECT_THAT(text, HasSubstr(fmt::format("\n{}:\n", row.group)));
  }
  EXPECT_THAT(text, HasSubstr("Default: 1."));
  EXPECT_THAT(text, Not(HasSubstr("print-man")));
}

TEST(Help, NamesTheVariableOfTheToken) {
  EXPECT_THAT(help_text(), HasSubstr("MUSTER_TOKEN"));
  EXPECT_THAT(man_page(), HasSubstr(".TP\n.B MUSTER_TOKEN\n"));
}

TEST(Help, BeginsWithUsageAndFourExamples) {
  const std::string text = help_text();
  EXPECT_EQ(text.substr(0, text.find('\n')), "Usage: muster [FLAGS] PROGRAM [ARGS...]");
  std::size_t examples = 0;
  for (const std::string_view line : split(text, '\n'))
    examples += line.starts_with("  muster --");
  EXPECT_EQ(examples, 4u);
}

TEST(Help, NamesEveryExitCode) {
  for (const ExitCode code : {ExitCode::success, ExitCode::usage, ExitCode::internal,
                              ExitCode::environment, ExitCode::rendezvous, ExitCode::unkillable,
                              ExitCode::cannot_execute, ExitCode::not_found}) {
    const std::string number = std::to_string(static_cast<int>(code));
    EXPECT_THAT(help_text(), HasSubstr(number + " "));
    EXPECT_THAT(man_page(), HasSubstr(".TP\n.B " + number + "\n"));
  }
}

// Returns the text as a reader sees it, with roff's \- as a dash.
std::string unescaped(std::string text) {
  for (std::size_t at = 0; (at = text.find("\\-", at)) != std::string::npos;)
    text.erase(at, 1);
  return text;
}

TEST(ManPage, HasTheSectionsOfAManPage) {
  const std::string page = man_page();
  EXPECT_TRUE(page.starts_with(".TH MUSTER 1\n"));
  for (const char* section : {"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "ENVIRONMENT",
                              "EXIT STATUS", "EXAMPLES", "SEE ALSO"}) {
    EXPECT_THAT(page, HasSubstr(std::string("\n.SH ") + section + "\n"));
  }
}

TEST(ManPage, DescribesEveryFlagAndItsVariable) {
  const std::string page = unescaped(man_page());
  for (const OptionRow& row : option_rows()) {
    if (row.group.empty()) continue;
    EXPECT_THAT(page, HasSubstr(fmt::format("\\fB--{}\\fR", row.name)));
    EXPECT_THAT(page, HasSubstr(fmt::format("\n{}\n", row.help)));
    if (!row.traits.reads_variable) continue;
    EXPECT_THAT(page, HasSubstr("\nVariable: " + row.variable() + ".\n"));
  }
}

TEST(ManPage, HasNoTextThatRoffWouldTakeForARequest) {
  const std::set<std::string_view> requests{".TH", ".SH", ".SS", ".TP", ".B", ".I",
                                            ".RI", ".PP", ".RS", ".RE", ".BR"};
  const std::string page = man_page();
  for (const std::string_view line : split(page, '\n')) {
    EXPECT_FALSE(line.starts_with('\'')) << line;
    const bool request = line.starts_with('.');
    EXPECT_TRUE(!request || requests.contains(line.substr(0, line.find(' ')))) << line;
  }
}

}  // namespace
}  // namespace muster
