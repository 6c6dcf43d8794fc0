#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/help.h"
#include "launcher/option_table.h"
#include "tests/fakes/temp_tree.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

using Offers = std::set<std::string>;

// Asks bash, with our script, for its offers for the last of `words`. The current folder holds
// logs/, logs.txt and train.py.
class BashCompletion : public ::testing::Test {
 protected:
  void SetUp() override {
    tree_.write("script", completion_script("bash").value());
    tree_.write("here/logs/x", "");
    tree_.write("here/logs.txt", "");
    tree_.write("here/train.py", "");
  }

  Offers offers(const std::vector<std::string>& words) const {
    std::string command = "cd '" + (tree_.root() / "here").string() + "' && bash --norc -c '" +
                          ". ../script; COMP_WORDS=(muster";
    for (const std::string& word : words)
      command += " \"" + word + "\"";
    command += "); COMP_CWORD=" + std::to_string(words.size()) +
               "; _muster; printf \"%s\\n\" \"${COMPREPLY[@]}\"' 2>&1";
    return lines_of(command);
  }

  const TempTree& tree() const { return tree_; }

  static Offers lines_of(const std::string& command) {
    FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) {
      ADD_FAILURE() << "cannot run " << command;
      return {};
    }
    Offers lines;
    std::string line;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
      if (c != '\n') {
        line += static_cast<char>(c);
      } else if (!line.empty()) {
        lines.insert(std::exchange(line, {}));
      }
    }
    EXPECT_EQ(pclose(pipe), 0) << command;
    return lines;
  }

 private:
  TempTree tree_;
};

TEST_F(BashCompletion, OffersEveryFlag) {
  Offers flags;
  for (const OptionRow& row : option_rows()) {
    if (!row.group.empty()) flags.insert(fmt::format("--{}", row.name));
  }
  EXPECT_EQ(offers({"--"}), flags);
}

TEST_F(BashCompletion, OffersTheFlagsThatBeginLikeTheWord) {
  EXPECT_EQ(offers({"--nn"}), Offers({"--nnodes"}));
  EXPECT_EQ(offers({"--max-m"}), Offers({"--max-membership-changes"}));
  EXPECT_EQ(offers({"--nnodes", "1", "--rdzv-e"}), Offers({"--rdzv-endpoint"}));
  EXPECT_EQ(offers({"--stand", "--rdzv-e"}), Offers({"--rdzv-endpoint"}));
}

TEST_F(BashCompletion, OffersTheWordsOfAFlag) {
  EXPECT_EQ(offers({"--rdzv-backend", ""}), Offers({"static", "c10d", "file", "etcd"}));
  EXPECT_EQ(offers({"--rdzv_backend", "f"}), Offers({"file"}));
  EXPECT_EQ(offers({"--rdzv-backend", "=", "s"}), Offers({"static"}));
  EXPECT_EQ(offers({"--rdzv-backend", "="}), Offers({"static", "c10d", "file", "etcd"}));
  EXPECT_EQ(offers({"--stdin", ""}), Offers({"none"}));
  EXPECT_EQ(offers({"--store-allow", ""}), Offers({"any"}));
  EXPECT_EQ(offers({"--print-completion", ""}), Offers({"bash", "zsh", "tcsh"}));
}

TEST_F(BashCompletion, OffersFoldersOrFilesAsTheFlagTakesThem) {
  EXPECT_EQ(offers({"--log-dir", "l"}), Offers({"logs"}));
  EXPECT_EQ(offers({"--python", "l"}), Offers({"logs", "logs.txt"}));
  EXPECT_EQ(offers({"--rdzv-token-file", "l"}), Offers({"logs", "logs.txt"}));
}

TEST_F(BashCompletion, OffersNothingForFreeValues) {
  EXPECT_EQ(offers({"--nnodes", ""}), Offers{});
  EXPECT_EQ(offers({"-t", ""}), Offers{});
}

TEST_F(BashCompletion, OffersFilesAndCommandsAsTheProgram) {
  EXPECT_THAT(offers({"tr"}), AllOf(Contains("train.py"), Contains("true")));
  EXPECT_EQ(offers({"--", "train."}), Offers({"train.py"}));
}

TEST_F(BashCompletion, OffersOnlyFilesAfterTheProgram) {
  EXPECT_EQ(offers({"train.py", "--"}), Offers{});
  EXPECT_EQ(offers({"-m", "-r", "3", "pkg", "tr"}), Offers({"train.py"}));
  EXPECT_EQ(offers({"--nnodes", "=", "1", "pkg", "tr"}), Offers({"train.py"}));
  EXPECT_EQ(offers({"--", "pkg", "--nn"}), Offers{});
}

TEST_F(BashCompletion, IsRegisteredForMuster) {
  EXPECT_EQ(lines_of("bash --norc -c '. \"" + (tree().root() / "script").string() +
                     "\" && complete -p muster'"),
            Offers({"complete -o filenames -F _muster muster"}));
}

// True if the shell is installed; without it only the text of its script is checked.
bool has_shell(const char* name) {
  const std::string command = std::string("command -v ") + name + " > /dev/null 2>&1";
  return std::system(command.c_str()) == 0;
}

TEST(ZshCompletion, DescribesEveryFlagOnce) {
  const std::string script = completion_script("zsh").value();
  EXPECT_TRUE(script.starts_with("#compdef muster\n"));
  for (const OptionRow& row : option_rows()) {
    if (row.group.empty()) continue;
    EXPECT_THAT(script,
                HasSubstr(fmt::format("    '--{}{}", row.name, row.takes_value() ? "=[" : "[")));
  }
  EXPECT_THAT(script, HasSubstr(":(static c10d file etcd)'"));
  EXPECT_THAT(script, HasSubstr("'-m["));
  EXPECT_THAT(script, HasSubstr("'-t+["));
  EXPECT_THAT(script, HasSubstr("_files -/'"));
  EXPECT_THAT(script, Not(HasSubstr("print-man")));
}

TEST(ZshCompletion, EscapesWhatIsSpecialInDescriptions) {
  const std::string script = completion_script("zsh").value();
  EXPECT_THAT(script, HasSubstr("muster'\\''s standard input"));
  EXPECT_THAT(script, HasSubstr(":HOST\\[\\:PORT\\]\\[,...\\]|/PATH:"));
}

TEST(ZshCompletion, IsValidZsh) {
  if (!has_shell("zsh")) GTEST_SKIP() << "zsh is not installed: the script is not parsed";
  TempTree tree;
  tree.write("_muster", completion_script("zsh").value());
  EXPECT_EQ(std::system(("zsh -n '" + (tree.root() / "_muster").string() + "'").c_str()), 0);
}

TEST(TcshCompletion, NamesEveryFlagAndItsWords) {
  const std::string script = completion_script("tcsh").value();
  EXPECT_TRUE(script.starts_with("complete muster "));
  for (const OptionRow& row : option_rows()) {
    if (row.group.empty()) continue;
    EXPECT_THAT(script, HasSubstr(row.name));
  }
  EXPECT_THAT(script, HasSubstr("'n/--rdzv-backend/(static c10d file etcd)/'"));
  EXPECT_THAT(script, HasSubstr("'n/--log-dir/d/'"));
  EXPECT_THAT(script, HasSubstr("'n/--python/f/'"));
  EXPECT_THAT(script, Not(HasSubstr("print-man")));
}

TEST(TcshCompletion, IsValidTcsh) {
  if (!has_shell("tcsh")) GTEST_SKIP() << "tcsh is not installed: the script is not parsed";
  TempTree tree;
  tree.write("muster.csh", completion_script("tcsh").value());
  EXPECT_EQ(std::system(("tcsh -f '" + (tree.root() / "muster.csh").string() + "'").c_str()), 0);
}

TEST(Completion, KnowsNoOtherShell) {
  EXPECT_EQ(completion_script("fish"), std::nullopt);
  EXPECT_EQ(completion_script(""), std::nullopt);
  EXPECT_EQ(completion_script("Bash"), std::nullopt);
}

}  // namespace
}  // namespace muster
