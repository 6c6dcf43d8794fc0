#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "agent/report/traceback_lines.h"

namespace muster {
namespace {

constexpr auto kCause = RaisedException::After::cause;
constexpr auto kContext = RaisedException::After::context;

RaisedException raised(const std::string& type, RaisedException::After after = {},
                       std::optional<Blame> blame = {}) {
  return {type, type + ": x", std::move(blame), after};
}

// An exception about lost connections to these ranks.
RaisedException lost(const std::string& type, RaisedException::After after = {},
                     std::vector<int> ranks = {}) {
  return raised(type, after, Blame{std::move(ranks), false});
}

std::string told_text(const RaisedException& told) {
  std::string text = fmt::format("{}|{}", told.type, told.text);
  if (told.blame) text += fmt::format("|blames {}", fmt::join(told.blame->ranks, ","));
  return text;
}

std::string chain_text(const std::vector<RaisedException>& chain) {
  return told_text(told_of_chain(chain));
}

TEST(ExceptionChain, IsItsOnlyException) {
  EXPECT_EQ(chain_text({raised("A")}), "A|A: x");
  EXPECT_EQ(chain_text({lost("A", {}, {2})}), "A|A: x|blames 2");
  EXPECT_EQ(chain_text({raised("StopIteration")}), "StopIteration|StopIteration: x");
}

TEST(ExceptionChain, NamesTheLastExceptionAndItsFirstCause) {
  EXPECT_EQ(chain_text({raised("A"), raised("B", kCause)}), "B|B: x (caused by A: x)");
  EXPECT_EQ(chain_text({raised("A"), raised("B", kCause), raised("C", kCause)}),
            "C|C: x (caused by A: x)");
}

TEST(ExceptionChain, NamesTheLastExceptionAndTheOneThatItHandled) {
  EXPECT_EQ(chain_text({raised("A"), raised("B", kContext)}), "B|B: x (while handling A: x)");
  EXPECT_EQ(chain_text({raised("A"), raised("B", kContext), raised("C", kContext)}),
            "C|C: x (while handling B: x)");
  EXPECT_EQ(chain_text({raised("A"), raised("B", kCause), raised("C", kContext)}),
            "C|C: x (while handling B: x)");
  EXPECT_EQ(chain_text({raised("A"), raised("B", kContext), raised("C", kCause)}),
            "C|C: x (caused by B: x)");
}

TEST(ExceptionChain, DropsWhatAWrapperRepeats) {
  const RaisedException inner{"A", "A: no such file", {}, {}};
  EXPECT_EQ(chain_text({inner, {"A", "A: no such file", {}, kCause}}), "A|A: no such file");
  EXPECT_EQ(chain_text({inner, {"A", "A: no such", {}, kContext}}), "A|A: no such file");
  EXPECT_EQ(chain_text({inner, {"A", "A: no such file x", {}, kCause}}),
            "A|A: no such file x (caused by A: no such file)");
}

TEST(ExceptionChain, CutsLongTextsToFitInALine) {
  const RaisedException first{"A", "A" + std::string(140, 'a'), {}, {}};
  const RaisedException last{"B", "B" + std::string(240, 'b'), {}, kCause};
  EXPECT_EQ(told_of_chain({first, last}).text,
            "B" + std::string(239, 'b') + " ... (1 more characters) (caused by A" +
                std::string(139, 'a') + " ... (1 more characters))");
}

TEST(ExceptionChain, IgnoresControlFlowExceptionsAtItsRoot) {
  for (const char* type : {"StopIteration", "StopAsyncIteration", "GeneratorExit", "queue.Empty",
                           "queue.Full", "asyncio.exceptions.CancelledError"}) {
    EXPECT_EQ(chain_text({raised(type), raised("A", kContext)}), "A|A: x");
    EXPECT_EQ(chain_text({raised(type), lost("A", kContext, {2})}), "A|A: x|blames 2") << type;
  }
  EXPECT_EQ(chain_text({raised("NotEmpty"), raised("A", kContext)}),
            "A|A: x (while handling NotEmpty: x)");
}

TEST(ExceptionChain, CollectsTheBlamedRanksIfItsRootBlames) {
  EXPECT_EQ(chain_text({lost("A", {}, {2}), raised("B", kCause)}),
            "B|B: x (caused by A: x)|blames 2");
  EXPECT_EQ(chain_text({lost("A", {}, {3}), lost("B", kContext, {1, 3})}),
            "B|B: x (while handling A: x)|blames 1,3");
}

// A program that fails by itself loses its connections while it cleans up.
TEST(ExceptionChain, EndsBeforeTheFirstLostConnectionIfItsRootBlamesNoPeer) {
  EXPECT_EQ(chain_text({raised("A"), lost("B", kContext)}), "A|A: x");
  EXPECT_EQ(
      chain_text({raised("A"), raised("B", kCause), lost("C", kContext), raised("D", kCause)}),
      "B|B: x (caused by A: x)");
}

RC_GTEST_PROP(ExceptionChain, BlamesExactlyIfItsRootDoes, ()) {
  const auto links = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::pair<bool, bool>>>(
      rc::gen::arbitrary<std::pair<bool, bool>>()));
  std::vector<RaisedException> chain;
  for (const auto& [blames, from_cause] : links) {
    const auto after = chain.empty() ? RaisedException::After::nothing
                       : from_cause  ? kCause
                                     : kContext;
    const std::string type = "E" + std::to_string(chain.size());
    chain.push_back(blames ? lost(type, after, {static_cast<int>(chain.size())})
                           : raised(type, after));
  }
  const RaisedException told = told_of_chain(chain);
  RC_ASSERT(told.blame.has_value() == chain[0].blame.has_value());
  RC_ASSERT(told.text.starts_with(told.type + ": x"));
  if (told.blame) {
    RC_ASSERT(told.type == chain.back().type);
    for (size_t i = 0; i < chain.size(); ++i)
      RC_ASSERT(chain[i].blame.has_value() ==
                std::ranges::binary_search(told.blame->ranks, int(i)));
  }
}

std::string group_text(const std::vector<RaisedException>& leaves) {
  return told_text(told_of_group(leaves));
}

TEST(ExceptionChain, ShowsThreeLeavesOfAGroup) {
  EXPECT_EQ(group_text({raised("A")}), "A|A: x");
  EXPECT_EQ(group_text({raised("A"), raised("B"), raised("C")}), "A|A: x; B: x; C: x");
  EXPECT_EQ(group_text({raised("A"), raised("B"), raised("C"), raised("D"), raised("E")}),
            "A|A: x; B: x; C: x; 2 more");
}

TEST(ExceptionChain, BlamesPeersForAGroupIfAllItsLeavesDo) {
  EXPECT_EQ(group_text({lost("A", {}, {3}), lost("B", {}, {1})}), "A|A: x; B: x|blames 1,3");
  EXPECT_EQ(group_text({lost("A", {}, {3}), raised("B")}), "A|A: x; B: x");
  EXPECT_EQ(group_text({raised("A"), lost("B", {}, {3})}), "A|A: x; B: x");
  EXPECT_EQ(group_text({lost("A"), raised("B"), lost("C"), lost("D")}),
            "A|A: x; B: x; C: x; 1 more");
}

TEST(ExceptionChainDeathTest, RefusesAnEmptyChainOrGroup) {
  EXPECT_DEATH(told_of_chain({}), "internal error: CHECK");
  EXPECT_DEATH(told_of_group({}), "internal error: CHECK");
}

}  // namespace
}  // namespace muster
