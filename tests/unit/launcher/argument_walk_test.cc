#include "launcher/argument_walk.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "launcher/option_table.h"

namespace muster {

void PrintTo(const WalkedArguments& walked, std::ostream* out) {
  for (const auto& [name, value] : walked.values)
    *out << name << "='" << value << "' ";
  *out << "rest:";
  for (const std::string& word : walked.rest)
    *out << " '" << word << "'";
  *out << " information: " << walked.information;
}

namespace {

using Values = std::map<std::string, std::string>;
using Words = std::vector<std::string>;

WalkedArguments walk(const Words& args) {
  const Result<WalkedArguments> walked = walk_arguments(args);
  EXPECT_TRUE(walked.has_value()) << walked.error().message;
  return walked.value_or(WalkedArguments{});
}

std::string complaint(const Words& args) {
  const Result<WalkedArguments> walked = walk_arguments(args);
  if (walked) return "no complaint";
  EXPECT_EQ(walked.error().code, ExitCode::usage);
  EXPECT_EQ(walked.error().message.find('\n'), std::string::npos);
  return walked.error().message;
}

// Returns the flags in `args`, which the program "p" follows.
Values flags(Words args) {
  args.push_back("p");
  const WalkedArguments walked = walk(args);
  EXPECT_EQ(walked.rest, Words({"p"}));
  return walked.values;
}

TEST(ArgumentWalk, FindsNothingInAnEmptyCommandLine) {
  EXPECT_EQ(walk({}), WalkedArguments{});
}

TEST(ArgumentWalk, TakesValuesInEverySpelling) {
  const Values two{{"nproc-per-node", "2"}};
  EXPECT_EQ(flags({"--nproc-per-node", "2"}), two);
  EXPECT_EQ(flags({"--nproc-per-node=2"}), two);
  EXPECT_EQ(flags({"--nproc_per_node", "2"}), two);
  EXPECT_EQ(flags({"--nproc_per_node=2"}), two);
  EXPECT_EQ(flags({"--nproc-per_node=2"}), two);
}

TEST(ArgumentWalk, TakesEveryFlagOfTheTableInBothSpellings) {
  for (const OptionRow& row : option_rows()) {
    const std::string dashed(row.name);
    std::string underscored = dashed;
    for (char& c : underscored)
      c = c == '-' ? '_' : c;
    for (const std::string& name : {dashed, underscored}) {
      const WalkedArguments walked = walk({"--" + name + (row.takes_value() ? "=v" : "")});
      const char* const value = row.takes_value() ? "v" : row.may_have_value() ? "" : "1";
      EXPECT_EQ(walked.values, Values({{dashed, value}})) << name;
    }
  }
}

TEST(ArgumentWalk, TakesAnOptionalValueOnlyIfItIsAttached) {
  EXPECT_EQ(flags({"--requeue=3"}), Values({{"requeue", "3"}}));
  EXPECT_EQ(walk({"--requeue", "3"}).values, Values({{"requeue", ""}}));
  EXPECT_EQ(walk({"--requeue", "3"}).rest, Words{"3"});
}

TEST(ArgumentWalk, KeepsAwkwardValuesAsTheyAre) {
  EXPECT_EQ(flags({"--rdzv-id="}), Values({{"rdzv-id", ""}}));
  EXPECT_EQ(flags({"--rdzv-id", ""}), Values({{"rdzv-id", ""}}));
  EXPECT_EQ(flags({"--rdzv-conf=a=1,b=2"}), Values({{"rdzv-conf", "a=1,b=2"}}));
  EXPECT_EQ(flags({"--role", "[a,b]"}), Values({{"role", "[a,b]"}}));
  EXPECT_EQ(flags({"--role", "-"}), Values({{"role", "-"}}));
  EXPECT_EQ(flags({"--role", "- a"}), Values({{"role", "- a"}}));
  EXPECT_EQ(flags({"--log-prefix=--x"}), Values({{"log-prefix", "--x"}}));
}

TEST(ArgumentWalk, TakesNegativeNumbersAsValues) {
  for (const char* number : {"-1", "-12", "-1.5", "-.5"}) {
    EXPECT_EQ(flags({"--max-restarts", number}), Values({{"max-restarts", number}}));
  }
  for (const char* other : {"-1x", "-1.", "-1.2.3"}) {
    EXPECT_NE(complaint({"--max-restarts", other, "p"}), "no complaint") << other;
  }
}

TEST(ArgumentWalk, LetsTheLastValueWin) {
  EXPECT_EQ(flags({"--nnodes", "1", "--nnodes=2", "--nnodes", "3"}), Values({{"nnodes", "3"}}));
  EXPECT_EQ(flags({"-r", "1", "--redirects=2"}), Values({{"redirects", "2"}}));
  EXPECT_EQ(flags({"-m", "-m"}), Values({{"module", "1"}}));
}

TEST(ArgumentWalk, UnderstandsShortFlagsAndClusters) {
  EXPECT_EQ(flags({"-r3"}), Values({{"redirects", "3"}}));
  EXPECT_EQ(flags({"-r", "3"}), Values({{"redirects", "3"}}));
  EXPECT_EQ(flags({"-r=3"}), Values({{"redirects", "3"}}));
  EXPECT_EQ(flags({"-r0:1,1:2"}), Values({{"redirects", "0:1,1:2"}}));
  EXPECT_EQ(flags({"-mt", "3"}), Values({{"module", "1"}, {"tee", "3"}}));
  EXPECT_EQ(flags({"-mt3"}), Values({{"module", "1"}, {"tee", "3"}}));
  EXPECT_EQ(flags({"-mr=1"}), Values({{"module", "1"}, {"redirects", "1"}}));
}

TEST(ArgumentWalk, AcceptsPrefixesThatMeanOneFlag) {
  const std::map<std::string, std::string> prefixes{
      {"--stand", "standalone"},
      {"--max_r=1", "max-restarts"},
      {"--max-r=1", "max-restarts"},
      {"--nproc-p=2", "nproc-per-node"},
      {"--nproc_p=2", "nproc-per-node"},
      {"--nproc=2", "nproc-per-node"},
      {"--np=2", "nproc-per-node"},
      {"--redirect=3", "redirects"},
      {"--nn=1", "nnodes"},
      {"--mod", "module"},
      {"--rdzv-b=c10d", "rdzv-backend"},
      {"--python=x", "python"},
      {"--gpu-=x", "gpu-binding"},
      {"--pas", "pass-local-rank"},
  };
  for (const auto& [token, name] : prefixes) {
    const Values values = flags({token});
    ASSERT_EQ(values.size(), 1u) << token;
    EXPECT_EQ(values.begin()->first, name) << token;
  }
}

TEST(ArgumentWalk, LetsPrefixesOfTorchrunKeepTheirMeaning) {
  const std::map<std::string, std::string> prefixes{
      {"--re=1", "redirects"},
      {"--e=console", "event-log-handler"},
      {"--v", "virtual-local-rank"},
      {"--log-l=x", "log-line-prefix-template"},
      {"--ru", "run-path"},
      {"--lo-=x", ""},
      {"--max=3", "max-restarts"},
      {"--start=spawn", "start-method"},
      {"--no-", "no-python"},
      {"--sta=x", ""},
      {"--loc=x", ""},
      {"--mas=x", ""},
  };
  for (const auto& [token, name] : prefixes) {
    if (name.empty()) {
      EXPECT_NE(complaint({token, "p"}), "no complaint") << token;
    } else {
      EXPECT_EQ(flags({token}).begin()->first, name) << token;
    }
  }
}

TEST(ArgumentWalk, NamesTheCandidatesOfAnAmbiguousPrefix) {
  EXPECT_EQ(complaint({"--rdzv", "1", "p"}),
            "--rdzv is ambiguous; it could be --rdzv-backend, --rdzv-endpoint, --rdzv-id, "
            "--rdzv-conf");
  EXPECT_EQ(complaint({"--gpu", "p"}), "--gpu is ambiguous; it could be --gpus, --gpu-binding");
  EXPECT_EQ(complaint({"--mo", "p"}),
            "--mo is ambiguous; it could be --module, --monitor-interval");
  EXPECT_EQ(complaint({"--duplicate=x", "p"}),
            "--duplicate is ambiguous; it could be --duplicate-stdout-filters, "
            "--duplicate-stderr-filters");
}

TEST(ArgumentWalk, NamesTheNearestFlagForAnUnknownOne) {
  const std::map<std::string, std::string> nearest{
      {"--nproc-per-nod3", "--nproc-per-node"},
      {"--nproc_per_nodes", "--nproc-per-node"},
      {"--max-restart-count=3", "--max-restarts"},
      {"--rdzv-endpint", "--rdzv-endpoint"},
      {"-nnodes", "--nnodes"},
      {"-np", "--nproc-per-node"},
      {"-n", "--nproc-per-node"},
      {"--rnaks", "--ranks"},
      {"--master-host", "--master-port"},
  };
  for (const auto& [token, name] : nearest) {
    EXPECT_EQ(complaint({token, "p"}), "unknown flag " + token.substr(0, token.find('=')) +
                                           "; the nearest known one is " + name +
                                           ", muster --help lists all")
        << token;
  }
}

TEST(ArgumentWalk, NamesNoFlagForOneThatResemblesNone) {
  for (const std::string token :
       {"--frobnicate", "-x", "--verbose", "--hostfile", "--bogus", "--foo", "-1", "---", "-mx"}) {
    EXPECT_EQ(complaint({token, "p"}), "unknown flag " + token + "; muster --help lists all");
  }
}

TEST(ArgumentWalk, RefusesDashesThatAreNoHyphens) {
  const std::map<std::string, std::string> meant{
      {"\u2013nproc-per-node=2", "--nproc-per-node=2"},  // An en dash.
      {"\u2014standalone", "--standalone"},              // An em dash.
      {"\u2212\u2212max_restarts", "--max_restarts"},    // Two minus signs.
      {"\u2013-tee", "--tee"},
      {"\u2010m", "-m"},
      {"\u2013r=3", "-r=3"},
      {"\u2013r3", "-r3"},
      {"\u2013mt3", "-mt3"},
      {"\u2015unknown", "--unknown"},
      {"\u2013unknown a", "'--unknown a'"},
      {"\u2013", "-"},
  };
  for (const auto& [token, flag] : meant) {
    const std::string shown_token =
        token.find(' ') == std::string::npos ? token : "'" + token + "'";
    const std::string message =
        shown_token + " begins with a dash character that is not '-'; type " + flag;
    EXPECT_EQ(complaint({token, "p"}), message);
    EXPECT_EQ(complaint({"--nnodes", "1", token, "p"}), message);
  }
}

TEST(ArgumentWalk, AcceptsDashesThatAreNoHyphensIfNoFlagIsMeant) {
  const Words tail{"s.py", "\u2013x", "\u2014"};
  EXPECT_EQ(walk(tail), (WalkedArguments{{}, tail, ""}));
  EXPECT_EQ(walk({"--", "\u2013x"}), (WalkedArguments{{}, {"\u2013x"}, "", true}));
  EXPECT_EQ(flags({"--role", "\u2013x"}), Values({{"role", "\u2013x"}}));
  for (const char* other : {"\u2018x", "\u200f", "\u2192x", "\xe2", "\xe2\x80", "\u00e9"}) {
    EXPECT_EQ(walk({other}).rest, Words({other}));
  }
}

TEST(ArgumentWalk, RefusesNegativeNumbersAndOddDashesAsPrograms) {
  for (const char* token : {"-1", "---", "--=", "--=x", "-=", "-x"}) {
    EXPECT_EQ(complaint({token, "p"}).substr(0, 12), "unknown flag") << token;
  }
}

TEST(ArgumentWalk, SaysWhichValueIsMissing) {
  EXPECT_EQ(complaint({"--nnodes"}), "--nnodes needs a value: --nnodes N|MIN:MAX");
  EXPECT_EQ(complaint({"-mr"}), "--redirects needs a value: --redirects STREAMS");
  EXPECT_EQ(
      complaint({"--role", "--nnodes", "p"}),
      "--role needs a value, but --nnodes follows; write --role=VALUE for a value that begins "
      "with a dash");
  EXPECT_EQ(
      complaint({"--role", "--", "p"}),
      "--role needs a value, but -- follows; write --role=VALUE for a value that begins with a "
      "dash");
}

TEST(ArgumentWalk, RefusesAValueForAFlagThatTakesNone) {
  EXPECT_EQ(complaint({"--module=x", "p"}),
            "--module takes no value, but got x; leave out the value");
  EXPECT_EQ(complaint({"--standalone=", "p"}),
            "--standalone takes no value, but got ''; leave out the value");
  EXPECT_EQ(complaint({"-m=x", "p"}), "--module takes no value, but got x; leave out the value");
}

TEST(ArgumentWalk, LeavesEverythingFromTheProgramOnAlone) {
  const Words tail{"s.py", "--nproc-per-node", "2", "-h", "--n", "--unknown", "", "[1,2]", "-"};
  Words args{"--nnodes", "1"};
  args.insert(args.end(), tail.begin(), tail.end());
  EXPECT_EQ(walk(args), (WalkedArguments{{{"nnodes", "1"}}, tail, ""}));
}

TEST(ArgumentWalk, TreatsDoubleDashesAsTorchrunDoes) {
  const std::vector<std::pair<Words, Words>> cases{
      {{"--", "s.py", "a"}, {"s.py", "a"}},
      {{"s.py", "--", "a", "b"}, {"s.py", "a", "b"}},
      {{"s.py", "--", "--", "c"}, {"s.py", "--", "c"}},
      {{"s.py", "a", "--", "b"}, {"s.py", "a", "--", "b"}},
      {{"--", "s.py", "--", "a"}, {"s.py", "--", "a"}},
      {{"--", "--nnodes"}, {"--nnodes"}},
      {{"--"}, {}},
      {{"s.py", "--"}, {"s.py"}},
      {{"--", "--"}, {"--"}},
  };
  for (const auto& [args, rest] : cases) {
    const bool dropped = args.size() > rest.size();
    EXPECT_EQ(walk(args), (WalkedArguments{{}, rest, "", dropped}))
        << ::testing::PrintToString(args);
  }
}

TEST(ArgumentWalk, EndsAtARequestForAText) {
  EXPECT_EQ(walk({"-h", "--bogus"}), (WalkedArguments{{{"help", "1"}}, {}, "help"}));
  EXPECT_EQ(walk({"--help"}).information, "help");
  EXPECT_EQ(walk({"--he"}).information, "help");
  EXPECT_EQ(walk({"-mh"}).information, "help");
  EXPECT_EQ(walk({"--version", "p"}).information, "version");
  EXPECT_EQ(walk({"--print-man"}).information, "print-man");
  EXPECT_EQ(walk({"--print-completion", "bash", "p"}),
            (WalkedArguments{{{"print-completion", "bash"}}, {}, "print-completion"}));
}

TEST(ArgumentWalk, ComplainsBeforeALaterRequestForAText) {
  EXPECT_EQ(complaint({"--bogus", "-h"}).substr(0, 12), "unknown flag");
}

RC_GTEST_PROP(ArgumentWalk, PassesAnyTailThrough, (const Words& tail)) {
  Words args{"-r", "3", "--role=x", "--", "program"};
  args.insert(args.end(), tail.begin(), tail.end());
  Words rest{"program"};
  rest.insert(rest.end(), tail.begin(), tail.end());
  const WalkedArguments expected{{{"redirects", "3"}, {"role", "x"}}, rest, "", true};
  RC_ASSERT((walk_arguments(args).value() == expected));
}

RC_GTEST_PROP(ArgumentWalk, EndsInAnAnswerForAnyArguments, (const Words& args)) {
  const Result<WalkedArguments> walked = walk_arguments(args);
  RC_ASSERT((walked.has_value() || walked.error().message.find('\n') == std::string::npos));
}

}  // namespace
}  // namespace muster
