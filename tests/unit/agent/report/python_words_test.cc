#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "agent/report/finding.h"
#include "tests/unit/agent/report/finding_text.h"
#include "tests/unit/agent/report/report_generators.h"

namespace muster {
namespace {

const std::string kHeader = "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n";
const std::string kFromCause =
    "\nThe above exception was the direct cause of the following exception:\n\n";
const std::string kWhileHandling =
    "\nDuring handling of the above exception, another exception occurred:\n\n";

// Scans from line `at` on; shows where the scan ended and what it found.
std::string scanned(const std::string& text, size_t at = 0) {
  const std::optional<TracebackScan> scan = scan_traceback(MessageLines(text), at);
  return scan ? fmt::format("to {}: {}", scan->end, text_of(scan->finding)) : "no traceback";
}

TEST(PythonWords, BeginAtATracebacksHeader) {
  EXPECT_EQ(scanned("KeyError: 'x'\n"), "no traceback");
  EXPECT_EQ(scanned("epoch 1\n" + kHeader + "KeyError: 'x'\n"), "no traceback");
  EXPECT_EQ(scanned("epoch 1\n" + kHeader + "KeyError: 'x'\nepoch 2\n", 1),
            "to 4: 1-4 KeyError: 'x'");
}

TEST(PythonWords, AreNoneIfTheExceptionIsMissing) {
  EXPECT_EQ(scanned(kHeader), "to 2: nothing");
  EXPECT_EQ(scanned("Traceback (most recent call last):"), "to 1: nothing");
  EXPECT_EQ(scanned(kHeader + "\nKeyError: 'x'\n"), "to 2: nothing");
  EXPECT_EQ(scanned(kHeader + "100 of 200\n"), "to 2: nothing");
}

TEST(PythonWords, NameTheLastExceptionOfAChainAndItsOrigin) {
  EXPECT_EQ(scanned(kHeader + "KeyError: 'x'\n" + kFromCause + kHeader + "ValueError: no x\n"),
            "to 9: 0-9 ValueError: no x (caused by KeyError: 'x')");
  EXPECT_EQ(scanned(kHeader + "KeyError: 'x'\n" + kWhileHandling + kHeader + "ValueError: no x\n"),
            "to 9: 0-9 ValueError: no x (while handling KeyError: 'x')");
}

TEST(PythonWords, EndAChainWhereItIsCutOff) {
  const std::string begin = kHeader + "KeyError: 'x'\n";
  EXPECT_EQ(scanned(begin + kFromCause), "to 3: 0-3 KeyError: 'x'");
  EXPECT_EQ(scanned(begin + kFromCause + "epoch 2\n"), "to 3: 0-3 KeyError: 'x'");
  EXPECT_EQ(scanned(begin + "\n" + kHeader + "ValueError: other\n"), "to 3: 0-3 KeyError: 'x'");
  EXPECT_EQ(scanned(begin + kFromCause + "[rank1]: " + kHeader + "ValueError: other\n"),
            "to 3: 0-3 KeyError: 'x'");
}

TEST(PythonWords, HaveSeveralLinesIfTheirTypeOrFirstLineSaysSo) {
  EXPECT_EQ(scanned(kHeader + "RuntimeError: it failed:\nfor x\nepoch 2\n\n"),
            "to 5: 0-5 RuntimeError: it failed: for x");
  EXPECT_EQ(scanned(kHeader + "RuntimeError: it failed:\nINFO:root:x\n"),
            "to 3: 0-3 RuntimeError: it failed:");
  EXPECT_EQ(scanned(kHeader + "KeyError: 'x'\nepoch 2\n"), "to 3: 0-3 KeyError: 'x'");
  EXPECT_EQ(scanned(kHeader + "MyError:\nfor x\n"), "to 4: 0-4 MyError: for x");
  const std::string lines = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
  EXPECT_EQ(scanned(kHeader + "RuntimeError: x\n" + lines), "to 11: 0-11 RuntimeError: x");
}

TEST(PythonWords, EndWithTheTagOfTorchsHook) {
  std::string tagged =
      "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a.py\"\n"
      "[rank1]: ValueError: boom\n\n[rank1]: more\n";
  for (int line = 0; line < 20; ++line)
    tagged += "[rank1]: and more\n";
  EXPECT_EQ(scanned(tagged + "\nepoch 2\n"),
            "to 25: 0-25 ValueError: boom | uncaught | by excepthook");
  EXPECT_EQ(scanned("[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a.py\"\n"
                    "[rank1]: KeyError: 'x'\n\n"
                    "[rank1]: During handling of the above exception, another one occurred:\n\n"
                    "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a.py\"\n"
                    "[rank1]: ValueError: no x\n"),
            "to 9: 0-9 ValueError: no x (while handling KeyError: 'x') | uncaught | by excepthook");
}

TEST(PythonWords, NameTheLeavesOfAGroup) {
  const std::string group =
      "  + Exception Group Traceback (most recent call last):\n"
      "  |   File \"a.py\", line 1, in f\n"
      "  | ExceptionGroup: two (2 sub-exceptions)\n";
  EXPECT_EQ(scanned(group + "epoch 2\n"), "to 3: 0-3 ExceptionGroup: two (2 sub-exceptions)");
  EXPECT_EQ(scanned(group + "  +-+---------------- 1 ----------------\n"
                            "    | Traceback (most recent call last):\n"
                            "    |   File \"a.py\", line 2, in g\n"
                            "    | ValueError: a\n"
                            "    | more of it\n"
                            "    +---------------- 2 ----------------\n"
                            "    | KeyError: 'b'\n"
                            "    +------------------------------------\n"
                            "epoch 2\n"),
            "to 11: 0-11 ValueError: a; KeyError: 'b'");
}

TEST(PythonWords, QuoteTheRealErrorOfAnotherProcess) {
  EXPECT_EQ(
      scanned(kHeader + "KeyError: Caught KeyError in DataLoader worker process 3.\nOriginal " +
              kHeader + "KeyError: 'x'\n"),
      "to 6: 0-6 KeyError: 'x' (in DataLoader worker process 3)");
  EXPECT_EQ(scanned(kHeader +
                    "mp.ProcessRaisedException: \n\n-- Process 1 terminated with the "
                    "following error:\n" +
                    kHeader + "ValueError: boom\n"),
            "to 8: 0-8 ValueError: boom (in process 1)");
  EXPECT_EQ(scanned(kHeader + "MyError: x\nOriginal " + kHeader + "KeyError: 'x'\n"),
            "to 6: 0-6 KeyError: 'x' (in another process)");
}

TEST(PythonWords, FallBackToTheOuterErrorIfTheInnerIsCutOff) {
  const std::string outer = "KeyError: Caught KeyError in DataLoader worker process 3.";
  EXPECT_EQ(scanned(kHeader + outer + "\nOriginal " + kHeader), "to 3: 0-3 " + outer);
}

TEST(PythonWords, StopAtTheFifthQuotedProcess) {
  std::string text = kHeader;
  for (int depth = 0; depth < 9; ++depth)
    text += "E" + std::to_string(depth) + ": x\nOriginal " + kHeader;
  std::string places;
  for (int depth = 0; depth < 4; ++depth)
    places += " (in another process)";
  EXPECT_EQ(scanned(text + "KeyError: 'x'\n"), "to 15: 0-15 E4: x" + places);
}

TEST(PythonWords, AreMinorIfPythonIgnoredTheException) {
  for (const char* above :
       {"Exception ignored in: <f>", "Error in sys.excepthook:", "Error in atexit._run_exitfuncs:",
        "--- Logging error ---", "[rank1]: Exception ignored in: <f>"})
    EXPECT_EQ(scanned(std::string(above) + "\n" + kHeader + "OSError: x\n", 1),
              "to 4: 0-4 OSError: x | minor")
        << above;
}

TEST(PythonWords, IncludeTheLineThatIntroducesThem) {
  EXPECT_EQ(scanned("Exception in thread T-1 (f):\n" + kHeader + "OSError: x\n", 1),
            "to 4: 0-4 OSError: x");
  EXPECT_EQ(scanned("Process SpawnProcess-1:\n" + kHeader + "OSError: x\n", 1),
            "to 4: 0-4 OSError: x");
  EXPECT_EQ(scanned("Process 1 of 2\n" + kHeader + "OSError: x\n", 1), "to 4: 1-4 OSError: x");
}

TEST(PythonWords, AreMinorForATaskThatWasNeverAwaited) {
  const std::string task = "future: <Task finished name='Task-1'>\n";
  EXPECT_EQ(scanned("Task exception was never retrieved\n" + task + kHeader + "OSError: x\n", 2),
            "to 5: 2-5 OSError: x | minor");
  EXPECT_EQ(scanned(task + kHeader + "OSError: x\n", 1), "to 4: 1-4 OSError: x");
}

TEST(PythonWords, MayReportAChildOrBlameAPeer) {
  EXPECT_EQ(scanned(kHeader + "subprocess.CalledProcessError: Command 'x' returned 1\n"),
            "to 3: 0-3 subprocess.CalledProcessError: Command 'x' returned 1 | of a child");
  EXPECT_EQ(scanned(kHeader + "ConnectionResetError: [Errno 104] x\n"),
            "to 3: 0-3 ConnectionResetError: [Errno 104] x | blames any connection");
  EXPECT_EQ(scanned(kHeader + "RuntimeError: [Rank 0]: Ranks 2, 1 failed to pass "
                              "monitoredBarrier in 9 ms\n"),
            "to 3: 0-3 RuntimeError: [Rank 0]: Ranks 2, 1 failed to pass monitoredBarrier in 9 ms "
            "| blames 1,2");
}

TEST(PythonWords, AreReadDespiteLogurusBlankLinesBetweenFrames) {
  EXPECT_EQ(scanned("Traceback (most recent call last):\n\n  File \"a.py\", line 1\n\n"
                    "> File \"b.py\", line 2\n    └ <f>\n\nValueError: boom\n"),
            "to 8: 0-8 ValueError: boom");
}

RC_GTEST_PROP(PythonWords, StayWithinTheTextWhateverItIs, ()) {
  const MessageLines lines(kHeader + *any_output() + kWhileHandling + kHeader + *any_output());
  for (size_t at = 0; at < lines.size(); ++at) {
    const std::optional<TracebackScan> scan = scan_traceback(lines, at);
    if (!scan) continue;
    RC_ASSERT(scan->end > at && scan->end <= lines.size());
    if (!scan->finding) continue;
    RC_ASSERT(scan->finding->end == scan->end);
    RC_ASSERT(scan->finding->first <= at && scan->finding->first + 1 >= at);
    RC_ASSERT(scan->finding->text.find('\n') == std::string::npos);
  }
}

}  // namespace
}  // namespace muster
