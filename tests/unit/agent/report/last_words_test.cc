#include "agent/report/last_words.h"

#include <string>

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(LastWords, AreEmptyWithoutAnErrorMessage) {
  EXPECT_EQ(last_words(""), "");
  EXPECT_EQ(last_words("epoch 1\nepoch 2\n"), "");
}

TEST(LastWords, AreFoundBehindAProgressBar) {
  EXPECT_EQ(last_words("\r 10%|#  | 1/9\r 20%|## | 2/9Traceback (most recent call last):\n"
                       "  File \"a.py\", line 2, in <module>\n"
                       "AssertionError\n"),
            "AssertionError");
}

TEST(LastWords, AreFoundDespiteTheColoursOfPython) {
  EXPECT_EQ(last_words("Traceback (most recent call last):\n"
                       "  File \x1b[35m\"a.py\"\x1b[0m, line 2\n"
                       "\x1b[1;35mValueError\x1b[0m: \x1b[35mboom\x1b[0m\n"),
            "ValueError: boom");
}

TEST(LastWords, AreWhatTorchsHookPrintedWhateverFollows) {
  const std::string hook =
      "[rank1]: Traceback (most recent call last):\n"
      "[rank1]:   File \"a.py\", line 2, in <module>\n"
      "[rank1]: ValueError: boom\n";
  for (const char* after :
       {"terminate called after throwing an instance of 'c10::Error'\n  what():  at the end\n",
        "terminate called without an active exception\n", "Fatal Python error: Aborted\n\n",
        "Exception ignored in: <x>\nTraceback (most recent call last):\n  File \"a\"\nOSError: y\n",
        "[rank1]:[W1122 10:00:00.892734361 TCPStore.cpp:106] [c10d] sendBytes failed: Broken "
        "pipe\n",
        "double free or corruption (out)\n"}) {
    EXPECT_EQ(last_words(hook + after), "ValueError: boom") << after;
  }
}

TEST(LastWords, AreAVictimsOwnErrorIfThatEndedIt) {
  const std::string lost =
      "terminate called after throwing an instance of 'std::system_error'\n"
      "  what():  read: Connection reset by peer\n";
  EXPECT_EQ(last_words("free(): invalid pointer\n" + lost), "free(): invalid pointer");
  const std::string caught =
      "Traceback (most recent call last):\n  File \"a\"\nOSError: no shard; trying again\n";
  EXPECT_EQ(last_words(caught + "epoch 2\n" + lost),
            "std::system_error: read: Connection reset by peer");
}

// The end of a long traceback in a tail, with these tags before its lines.
std::string cut_traceback(const std::string& tags) {
  std::string text = tags + "ard(x)\n";
  while (text.size() < size_t{16} << 10)
    text += tags + "  File \"/opt/model.py\", line 9, in forward\n" + tags + "    x = f(x)\n";
  return text;
}

// sys.setprofile() and sys.settrace() raised in a function that was being called.
TEST(LastWords, AreBelowAFrameWithoutCarets) {
  for (const std::string tags : {"", "[rank0]: "}) {
    EXPECT_EQ(last_words(tags + "Traceback (most recent call last):\n" + tags +
                         "  File \"a.py\", line 1, in f\n" + tags + "    def f():\n\n" + tags +
                         "  File \"b.py\", line 2, in late\n" + tags + "    raise E\n" + tags +
                         "E: boom\n"),
              "E: boom");
  }
}

TEST(LastWords, AreBelowTheFramesOfATracebackThatIsCut) {
  EXPECT_EQ(last_words(cut_traceback("") + "RuntimeError: 3 channels\n"),
            "RuntimeError: 3 channels");
  EXPECT_EQ(last_words(cut_traceback("[rank0]: ") + "[rank0]: E: no\n"), "E: no");
  EXPECT_EQ(last_words(cut_traceback("") + "epoch 3\n"), "");
  // A stack that a logger prints, in a tail that is whole.
  EXPECT_EQ(
      last_words("INFO:root:x\nStack (most recent call last):\n  File \"a.py\", line 1, in f\n"
                 "    log()\nINFO:root:next\n"),
      "");
}

TEST(LastWords, AreWhatWasSaidBeforePythonsOwnLineOnAnAbort) {
  EXPECT_EQ(
      last_words("terminate called without an active exception\n"
                 "Fatal Python error: Aborted\n\nCurrent thread 0x7f (most recent call first):\n"
                 "  File \"a.py\", line 2 in <module>\n"),
      "terminate called without an active exception");
  EXPECT_EQ(last_words("Fatal Python error: Aborted\n"), "Fatal Python error: Aborted");
}

TEST(LastWords, AreThoseOfATracebackInJson) {
  EXPECT_EQ(
      last_words("{\"exc\": \"Traceback (most recent call last):\\n  File \\\"a.py\\\", line 1\\n"
                 "KeyError: 'step'\\n\"}\n{\"msg\": \"bye\"}\n"),
      "KeyError: 'step'");
}

TEST(LastWords, AreTheMessageBeforeAnAbort) {
  const std::string aborted = "Fatal Python error: Aborted\n\nCurrent thread 0x1\n  File \"a\"\n";
  EXPECT_EQ(last_words("terminate called after throwing an instance of 'X'\n" + aborted), "X");
  EXPECT_EQ(last_words("F1130 05:18:32.433156 1399 a.py:5] loss is NaN\n" + aborted),
            "loss is NaN");
  EXPECT_EQ(last_words(aborted), "Fatal Python error: Aborted");
}

TEST(ErrorMessages, AreListedWithTheirByteRanges) {
  const std::string first =
      "Traceback (most recent call last):\n  File \"a\"\nOSError: no shard; trying again\n";
  const std::string second =
      "[rank0]: Traceback (most recent call last):\n"
      "[rank0]:   File \"a\"\n"
      "[rank0]: ConnectionResetError: [Errno 104] Connection reset by peer\n";
  const std::string all = "epoch 1\n" + first + "epoch 2\n" + second + "bye\n";
  const size_t begin = all.find("[rank0]");
  EXPECT_EQ(error_messages(all),
            (std::vector<ErrorMessage>{
                {"OSError: no shard; trying again", 8, 8 + first.size(), false, {}},
                {"ConnectionResetError: [Errno 104] Connection reset by peer", begin,
                 begin + second.size(), true, Blame{{}, true}}}));
}

TEST(LastWords, AreTheLaterOfTwoLanguages) {
  EXPECT_EQ(last_words("panic: first\n"
                       "Traceback (most recent call last):\n  File \"a\"\nOSError: second\n"),
            "OSError: second");
}

}  // namespace
}  // namespace muster
