#include "agent/report/finding.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "tests/unit/agent/report/finding_text.h"
#include "tests/unit/agent/report/report_generators.h"

namespace muster {
namespace {

using FindingTexts = std::vector<std::string>;

const std::string kWholeTraceback = "Traceback (most recent call last):\n  File \"a.py\"\nE: x\n";

FindingTexts all_in(const std::string& text) {
  FindingTexts texts;
  for (const Finding& finding : find_all(MessageLines(text)))
    texts.push_back(text_of(finding));
  return texts;
}

TEST(Findings, AreAbsentFromOrdinaryOutput) {
  EXPECT_EQ(all_in(""), FindingTexts{});
  EXPECT_EQ(all_in("\n"), FindingTexts{});
  EXPECT_EQ(all_in("epoch 1\nloss: 0.1\nINFO:root:done\nno error:\n"), FindingTexts{});
}

TEST(Findings, ListAllMessagesOldestFirst) {
  EXPECT_EQ(all_in("epoch 1\n" + kWholeTraceback + "epoch 2\n" + kWholeTraceback +
                   "free(): invalid pointer\npanic: y\n\ngoroutine 1 [running]:\n"),
            (FindingTexts{"1-4 E: x", "5-8 E: x", "8-9 free(): invalid pointer | uncaught",
                          "9-10 panic: y | uncaught"}));
}

TEST(Findings, CombineAChain) {
  EXPECT_EQ(all_in(kWholeTraceback +
                   "\nDuring handling of the above exception, another exception occurred:\n\n" +
                   kWholeTraceback + "epoch 2\n"),
            (FindingTexts{"0-9 E: x"}));
}

TEST(Findings, ContinueAfterATruncatedTraceback) {
  const std::string cut = "Traceback (most recent call last):\n  File \"a.py\"\n";
  EXPECT_EQ(all_in(cut + kWholeTraceback), (FindingTexts{"2-5 E: x"}));
  EXPECT_EQ(all_in(cut + "free(): invalid pointer\n"),
            (FindingTexts{"2-3 free(): invalid pointer | uncaught"}));
  EXPECT_EQ(all_in(cut), FindingTexts{});
}

TEST(Findings, DoNotShareTheLineThatIntroducesATraceback) {
  EXPECT_EQ(all_in("Process 1: runtime error: y:\n" + kWholeTraceback),
            (FindingTexts{"0-1 Process 1: runtime error: y:", "1-4 E: x"}));
  EXPECT_EQ(all_in("Process 1:\n" + kWholeTraceback), (FindingTexts{"0-4 E: x"}));
  EXPECT_EQ(all_in("x\nException ignored in: <f>\n" + kWholeTraceback),
            (FindingTexts{"1-5 E: x | minor"}));
}

TEST(Findings, IncludeMessagesInsideThem) {
  EXPECT_EQ(all_in("Fatal Python error: Aborted\n\nThread 0x1:\n  a.c:1: runtime error: z\n"),
            (FindingTexts{"0-4 Fatal Python error: Aborted | uncaught | echo"}));
}

RC_GTEST_PROP(Findings, AreInOrderAndDoNotOverlap, ()) {
  const MessageLines lines(*any_output() + *any_output() + kWholeTraceback);
  size_t end = 0;
  for (const Finding& finding : find_all(lines)) {
    RC_ASSERT(finding.first >= end);
    RC_ASSERT(finding.end > finding.first);
    end = finding.end;
  }
  RC_ASSERT(end <= lines.size());
}

}  // namespace
}  // namespace muster
