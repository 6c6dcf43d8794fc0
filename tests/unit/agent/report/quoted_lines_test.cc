#include "agent/report/quoted_lines.h"

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "agent/report/last_words.h"

namespace muster {
namespace {

using testing::ElementsAre;

std::string frame(const std::string& path, int line, const std::string& function) {
  return "  File \"" + path + "\", line " + std::to_string(line) + ", in " + function +
         "\n    code of " + function + "\n    ~~~~~^^^^^^\n";
}

const std::string kModule = "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py";

TEST(QuotedLines, FoldTheFramesOfLibraries) {
  const std::string traceback =
      "Traceback (most recent call last):\n" + frame("train.py", 9, "<module>") +
      frame("train.py", 4, "step") + frame(kModule, 1, "call") + frame(kModule, 2, "forward") +
      frame("/usr/lib/python3.11/threading.py", 3, "run") + frame("model.py", 7, "forward") +
      frame(kModule, 5, "linear") + "RuntimeError: shapes\n";
  EXPECT_THAT(
      quoted_lines(traceback, 30),
      ElementsAre("Traceback (most recent call last):", "  File \"train.py\", line 9, in <module>",
                  "    code of <module>", "  File \"train.py\", line 4, in step",
                  "    code of step", "  … 3 frames of torch, Python …",
                  "  File \"model.py\", line 7, in forward", "    code of forward",
                  "  … 1 frame of torch …", "RuntimeError: shapes"));
}

TEST(QuotedLines, ShowAnExceptionOnceThatWasLoggedAndThenEndedTheProgram) {
  const std::string logged =
      "Traceback (most recent call last):\n" + frame("train.py", 4, "step") + "ValueError: boom\n";
  const std::string uncaught = "Traceback (most recent call last):\n" +
                               frame("train.py", 9, "<module>") + frame("train.py", 4, "step") +
                               "ValueError: boom\n";
  EXPECT_THAT(
      quoted_lines("epoch 1\nERROR:root:step 4 failed\n" + logged + "closing\n" + uncaught, 30),
      ElementsAre("epoch 1", "ERROR:root:step 4 failed", "  … the exception below, logged before …",
                  "closing", "Traceback (most recent call last):",
                  "  File \"train.py\", line 9, in <module>", "    code of <module>",
                  "  File \"train.py\", line 4, in step", "    code of step", "ValueError: boom"));
}

TEST(QuotedLines, ShowTheTracebacksOfDifferentExceptions) {
  const std::string first =
      "Traceback (most recent call last):\n" + frame("train.py", 4, "step") + "ValueError: boom\n";
  const std::string second =
      "Traceback (most recent call last):\n" + frame("train.py", 4, "step") + "ValueError: bang\n";
  EXPECT_EQ(quoted_lines(first + "retrying\n" + second, 30).size(), 9U);
}

TEST(QuotedLines, ShowTheTracebackWithinALogEntryOfJson) {
  EXPECT_THAT(quoted_lines(
                  R"({"event": "step failed", "level": "error", "exception": )"
                  R"("Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    f()\n)"
                  R"(ValueError: \u00fc"})"
                  "\n",
                  30),
              ElementsAre("step failed", "Traceback (most recent call last):",
                          "  File \"a.py\", line 1, in f", "    f()", "ValueError: ü"));
}

TEST(QuotedLines, ShowTheExceptionThatStructlogWritesAsAnObject) {
  const std::string entry =
      R"({"event": "step failed", "exception": [{"exc_type": "ValueError", "exc_value": "boom", )"
      R"("frames": [{"filename": "a.py", "lineno": 7, "name": "f"}, 3]}]})"
      "\n";
  EXPECT_THAT(quoted_lines(entry, 30),
              ElementsAre("step failed", "Traceback (most recent call last):",
                          "  File \"a.py\", line 7, in f", "ValueError: boom"));
  EXPECT_EQ(last_words(entry), "ValueError: boom");
}

TEST(QuotedLines, TakeAnEntryThatIsCutOffAsItIs) {
  const std::string entry = R"({"exc_type": "ValueError", "exception": "Traceback (most rec)";
  EXPECT_THAT(quoted_lines(entry + "\n", 30), ElementsAre(entry));
}

TEST(QuotedLines, KeepTheTagsOfTorch) {
  EXPECT_THAT(quoted_lines("[rank1]: Traceback (most recent call last):\n"
                           "[rank1]:   File \"a.py\", line 1, in f\n[rank1]:     f()\n"
                           "[rank1]:     ^^^\n[rank1]:   File \"" +
                               kModule + "\", line 2, in g\n[rank1]:     g()\n[rank1]: E: boom\n",
                           30),
              ElementsAre("[rank1]: Traceback (most recent call last):",
                          "[rank1]:   File \"a.py\", line 1, in f", "[rank1]:     f()",
                          "[rank1]:   … 1 frame of torch …", "[rank1]: E: boom"));
}

TEST(QuotedLines, LeaveOutTheBlankLineOfAFrameWithoutCarets) {
  EXPECT_THAT(quoted_lines("  File \"" + kModule + "\", line 1, in f\n    def f():\n\n" +
                               frame("a.py", 2, "late") + "\nE: boom\n",
                           30),
              ElementsAre("  … 1 frame of torch …", "  File \"a.py\", line 2, in late",
                          "    code of late", "", "E: boom"));
}

TEST(QuotedLines, KeepTheInnermostFrameOfATracebackOfLibrariesAlone) {
  EXPECT_THAT(quoted_lines(frame(kModule, 1, "f") + frame(kModule, 2, "g") + "E: boom\n", 30),
              ElementsAre("  … 1 frame of torch …", "  File \"" + kModule + "\", line 2, in g",
                          "    code of g", "E: boom"));
}

TEST(QuotedLines, LeaveOutTheThreadOfTheRecorder) {
  const std::string recorder =
      "Thread 0x7f01 (most recent call first):\n"
      "  File \"/usr/lib/python3.11/threading.py\", line 324 in wait\n"
      "  File \"/run/user/1/muster/7.python/_muster_recorder.py\", line 670 in run\n\n";
  const std::string other =
      "Thread 0x7f02 (most recent call first):\n  File \"load.py\", line 3 in read\n\n";
  const std::string main =
      "Current thread 0x7f03 (most recent call first):\n  File \"train.py\", line 9 in step\n";
  EXPECT_THAT(
      quoted_lines("Fatal Python error: Aborted\n\n" + recorder + other + main, 30),
      ElementsAre("Fatal Python error: Aborted", "",
                  "Thread 0x7f02 (most recent call first):", "  File \"load.py\", line 3 in read",
                  "", "Current thread 0x7f03 (most recent call first):",
                  "  File \"train.py\", line 9 in step"));
}

TEST(QuotedLines, BeginWithTheProgramsFrameIfTheMessageIsLong) {
  std::string text = "Traceback (most recent call last):\n" + frame("train.py", 9, "step") +
                     frame(kModule, 1, "call") + "ValueError: keys:\n";
  for (int i = 0; i < 40; ++i)
    text += "  key " + std::to_string(i) + "\n";
  EXPECT_THAT(quoted_lines(text, 5),
              ElementsAre("  File \"train.py\", line 9, in step", "    code of step", "  ...",
                          "  key 38", "  key 39"));
  for (int i = 0; i < 100; ++i)
    text += "step " + std::to_string(i) + "\n";
  EXPECT_THAT(quoted_lines(text, 4), ElementsAre("step 96", "step 97", "step 98", "step 99"));
}

TEST(QuotedLines, AreTheLastLinesOfAnyOtherText) {
  EXPECT_THAT(quoted_lines("a\nb\nc\n\n", 2), ElementsAre("b", "c"));
  EXPECT_THAT(quoted_lines("    ^\n  File x\n", 9), ElementsAre("    ^", "  File x"));
  EXPECT_THAT(quoted_lines("", 9), ElementsAre());
}

RC_GTEST_PROP(QuotedLines, ChangeNothingInAQuote, ()) {
  std::string text;
  const std::vector<std::string> parts = {frame("a.py", 1, "f"),
                                          frame(kModule, 2, "g"),
                                          "E: boom\n",
                                          "[rank0]: x\n",
                                          "\n",
                                          "    ^^^\n",
                                          "  File \"b\n",
                                          "Traceback (most recent call last):\n"};
  for (const size_t part :
       *rc::gen::container<std::vector<size_t>>(rc::gen::inRange(size_t{0}, parts.size())))
    text += parts[part];
  const auto lines_max = *rc::gen::inRange<size_t>(0, 40);
  const std::vector<std::string> once = quoted_lines(text, lines_max);
  RC_ASSERT(once.size() <= lines_max);
  std::string again;
  for (const std::string& line : once)
    again += line + "\n";
  RC_ASSERT(quoted_lines(again, lines_max) == once);
}

// Its first line, which the quote leaves out, had made the first message another one.
TEST(QuotedLines, AQuoteOfAQuoteIsTheSameThoughTheFirstLinesWereCut) {
  const std::string thrown =
      "terminate called after throwing an instance of 'x'\n  what():  boom\n";
  const std::string panic = "thread 'main' panicked at a.rs:\n  File \"a.py\", line 1\n";
  const std::string raw = "thread 'main' panicked at a.rs:\n" + thrown + panic +
                          "\n\n\n\nValueError: boom\n" + panic + "  | \n" + thrown + " " + thrown +
                          "!";
  for (size_t most = 4; most < 20; ++most) {
    const std::vector<std::string> quoted = quoted_lines(raw, most);
    EXPECT_EQ(quoted_lines(fmt::format("{}", fmt::join(quoted, "\n")), most), quoted) << most;
  }
}

}  // namespace
}  // namespace muster
