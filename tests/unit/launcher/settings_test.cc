#include "launcher/settings.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

namespace muster {
namespace {

using ValueMap = std::map<std::string, std::string>;

// Settings with the flags and the environment that they refer to.
struct GivenSettings {
  GivenSettings(ValueMap flags, ValueMap variables)
      : values(std::move(flags)), environment(std::move(variables)) {}

  GivenSettings(const GivenSettings&) = delete;
  GivenSettings& operator=(const GivenSettings&) = delete;

  std::string found(std::string_view name) const {
    const std::optional<Setting> setting = settings.find(name);
    if (!setting) return "unset";
    return setting->value + "|" + setting->shown + (setting->from_command_line ? "|typed" : "");
  }

  ValueMap values, environment;
  Settings settings{values, environment};
};

TEST(Settings, ComeFromTheCommandLineElseFromTheVariable) {
  EXPECT_EQ(GivenSettings({}, {}).found("nnodes"), "unset");
  EXPECT_EQ(GivenSettings({}, {{"PET_NNODES", "2:x"}}).found("nnodes"), "2:x|PET_NNODES=2:x");
  EXPECT_EQ(GivenSettings({{"nnodes", "3"}}, {{"PET_NNODES", "2"}}).found("nnodes"),
            "3|--nnodes 3|typed");
  EXPECT_EQ(GivenSettings({}, {{"NNODES", "2"}, {"pet_nnodes", "2"}}).found("nnodes"), "unset");
}

TEST(Settings, AreSetByAnEmptyValue) {
  EXPECT_EQ(GivenSettings({{"role", ""}}, {}).found("role"), "|--role ''|typed");
  EXPECT_EQ(GivenSettings({}, {{"PET_ROLE", ""}}).found("role"), "|PET_ROLE=''");
  EXPECT_TRUE(GivenSettings({}, {{"PET_ROLE", ""}}).settings.given("role"));
  EXPECT_FALSE(GivenSettings({}, {}).settings.given("role"));
}

TEST(Settings, AreShownInOneLine) {
  EXPECT_EQ(GivenSettings({{"role", "a\nb c"}}, {}).found("role"), "a\nb c|--role 'a\\nb c'|typed");
  EXPECT_EQ(GivenSettings({}, {{"PET_ROLE", "a\x1b"}}).found("role"), "a\x1b|PET_ROLE=a\\x1b");
}

TEST(Settings, HaveNoVariableForSomeFlags) {
  const GivenSettings given({}, {{"PET_NUMA_BINDING", "node"}, {"PET_USE_ENV", "1"}});
  EXPECT_EQ(given.found("numa-binding"), "unset");
  EXPECT_EQ(GivenSettings({{"numa-binding", "node"}}, {}).found("numa-binding"),
            "node|--numa-binding node|typed");
}

TEST(Settings, KnowWhatTheCommandLineItselfSays) {
  const GivenSettings given({{"role", ""}}, {{"PET_NNODES", "2"}});
  EXPECT_TRUE(given.settings.on_command_line("role"));
  EXPECT_FALSE(given.settings.on_command_line("nnodes"));
}

TEST(Settings, FallBackOnlyIfUnset) {
  const GivenSettings given({{"role", ""}}, {{"PET_LOG_DIR", "/logs"}});
  EXPECT_EQ(given.settings.text("role", "default"), "");
  EXPECT_EQ(given.settings.text("log-dir", "default"), "/logs");
  EXPECT_EQ(given.settings.text("tee", "default"), "default");
}

struct SwitchCase {
  bool typed;
  const char* variable;  // nullptr: unset.
  bool on;
  std::string complaint;
};

TEST(Settings, AreWholeNumbersForAFlagWithoutValue) {
  const std::string junk = ": not a whole number; give 1 (on) or 0 (off), or unset it";
  const std::vector<SwitchCase> cases = {
      {false, nullptr, false, ""},
      {true, nullptr, true, ""},
      {false, "1", true, ""},
      {false, "0", false, ""},
      {true, "0", true, ""},
      {false, "-2147483648", true, ""},
      {false, " 00 ", false, ""},
      {false, "x", false, "PET_STANDALONE=x" + junk},
      {true, "", false, "PET_STANDALONE=''" + junk},
      {false, "2147483648", false, "PET_STANDALONE=2147483648" + junk},
  };
  for (const SwitchCase& one : cases) {
    GivenSettings given(one.typed ? ValueMap{{"standalone", ""}} : ValueMap{},
                        one.variable ? ValueMap{{"PET_STANDALONE", one.variable}} : ValueMap{});
    EXPECT_EQ(given.settings.on("standalone"), one.on) << one.complaint;
    EXPECT_EQ(given.settings.error() ? given.settings.error()->message : "", one.complaint);
  }
}

TEST(Settings, ComeFromTheCommandLineForAFlagWithoutValueAndVariable) {
  GivenSettings by_variable({}, {{"PET_USE_ENV", "x"}});
  EXPECT_FALSE(by_variable.settings.on("use-env"));
  EXPECT_EQ(by_variable.settings.error(), std::nullopt);
  EXPECT_TRUE(GivenSettings({{"use-env", ""}}, {}).settings.on("use-env"));
}

TEST(Settings, AreReadByTheGivenParser) {
  GivenSettings given({{"max-restarts", "7"}, {"node-rank", "x"}}, {{"PET_MASTER_PORT", "y"}});
  const auto whole = [](const std::string& text) { return parse_int(text, 0); };
  int value = -1;
  given.settings.read("spares", value, whole);
  EXPECT_EQ(value, -1);
  given.settings.read("max-restarts", value, whole);
  EXPECT_EQ(value, 7);
  EXPECT_EQ(given.settings.error(), std::nullopt);
  given.settings.read("node-rank", value, whole);
  given.settings.read("master-port", value, whole);
  EXPECT_EQ(value, 7);
  EXPECT_EQ(given.settings.error(),
            (Error{ExitCode::usage, "--node-rank x: not a whole number; give 0 or more"}));
}

TEST(Settings, KeepTheFirstComplaint) {
  GivenSettings given({}, {});
  EXPECT_EQ(given.settings.error(), std::nullopt);
  given.settings.refuse("first");
  given.settings.refuse("second");
  EXPECT_EQ(given.settings.error(), (Error{ExitCode::usage, "first"}));
}

TEST(Settings, ReadVariablesOfOtherSoftwareByTheirFullName) {
  const GivenSettings given({}, {{"NODE_RANK", ""}});
  EXPECT_EQ(given.settings.variable("NODE_RANK"), "");
  EXPECT_EQ(given.settings.variable("RANK"), std::nullopt);
}

std::vector<std::string> warnings_about(const std::string& variable) {
  return GivenSettings({}, {{variable, "1"}}).settings.take_warnings();
}

TEST(Settings, WarnOfVariablesThatResembleThoseOfFlags) {
  using Warnings = std::vector<std::string>;
  const auto meant = [](const std::string& wrong, const std::string& right) {
    return Warnings{wrong + " belongs to no flag and is ignored; did you mean " + right + "?"};
  };
  EXPECT_EQ(warnings_about("PET_NNODE"), meant("PET_NNODE", "PET_NNODES"));
  EXPECT_EQ(warnings_about("PET_NNODES_X"), meant("PET_NNODES_X", "PET_NNODES"));
  EXPECT_EQ(warnings_about("PET_MASTER"), meant("PET_MASTER", "PET_MASTER_ADDR"));
  EXPECT_EQ(warnings_about("PET_LEASE"), Warnings{});
  EXPECT_EQ(warnings_about("PET_NNODES_XY"), Warnings{});
  EXPECT_EQ(warnings_about("PETNNODES"), Warnings{});
  EXPECT_EQ(warnings_about("pet_nnode"), Warnings{});
  EXPECT_EQ(warnings_about("PET_HELP"),
            Warnings{"PET_HELP is ignored: --help is read from the command line only"});
}

TEST(Settings, HandTheirWarningsOverOnceInOrder) {
  GivenSettings given({}, {{"PET_ROLES", "x"}, {"PET_NNODE", "2"}});
  given.settings.warn("and this");
  EXPECT_EQ(
      given.settings.take_warnings(),
      (std::vector<std::string>{
          "PET_NNODE belongs to no flag and is ignored; did you mean PET_NNODES?",
          "PET_ROLES belongs to no flag and is ignored; did you mean PET_ROLE?", "and this"}));
  EXPECT_EQ(given.settings.take_warnings(), std::vector<std::string>{});
}

RC_GTEST_PROP(Settings, HaveTheValueThatWasGivenWhateverItIs,
              (const std::string& typed, const std::string& exported)) {
  const GivenSettings given({{"role", typed}}, {{"PET_ROLE", "x"}, {"PET_LOG_DIR", exported}});
  RC_ASSERT(given.settings.text("role", "other") == typed);
  RC_ASSERT(given.settings.text("log-dir", "other") == exported);
  RC_ASSERT(given.settings.find("role")->shown.find('\n') == std::string::npos);
}

}  // namespace
}  // namespace muster
