// The tail of 64 KiB may hold any bytes. The search must take time in proportion to its length:
// MessageLines counts how often its lines are read.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "agent/report/finding.h"
#include "agent/report/last_words.h"

namespace muster {
namespace {

constexpr size_t kTailBytes = 65536;

std::string repeated_to_the_tail(const std::string& text) {
  std::string all;
  while (all.size() + text.size() <= kTailBytes)
    all += text;
  return all;
}

// Each begins a message whose end a naive search would look for up to the end of the tail.
const std::vector<std::string>& unfinished() {
  const std::string header = "Traceback (most recent call last):\n";
  const std::string hook = "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a\"\n";
  static const std::vector<std::string> list = {
      "\n",
      " \n",
      "a\n",
      header,
      header + "\n",
      header + "  File \"a.py\", line 1, in f\n",
      header + "ValueError: x\n",
      header + "ValueError: x\n\nDuring handling of the above exception, another\n\n",
      "During handling of the above exception, another exception occurred:\n\n",
      header + "A: x\n\nDuring handling of the above exception, another\n\n" + header + "B: y\n\n",
      header + "KeyError: Caught KeyError in DataLoader worker process 0.\nOriginal " + header,
      header + "concurrent.futures.process._RemoteTraceback: \n\"\"\"\n",
      "Original " + header,
      hook,
      hook + "[rank1]: ValueError: x\n\n",
      hook + "[rank1]: ValueError: x\n[rank1]: y\n\n\n",
      "  + Exception Group " + header + "  |   File \"a\"\n",
      "  + Exception Group " + header + "  | ExceptionGroup: x (1 sub-exception)\n  +-+--- 1 ---\n",
      "    | ValueError: x\n",
      "╭─── Traceback (most recent call last) ───╮\n",
      "╭─── Traceback (most recent call last) ───╮\n│ a │\n",
      "╭─── Traceback (most recent call last) ───╮\n╰───╯\n",
      "╭─── Traceback (most recent call last) ───╮\n╰───╯\nA: x \n╭───╮\n",
      "╭─── Traceback (most recent call last) ───╮\n╰───╯\nExceptionGroup: x\n\n╭─ Sub-exception "
      "#1 ─╮\n",
      "│ a │\n",
      "+--- Traceback (most recent call last) ---+\n| a |\n",
      "2026-11-20 10:00:00 ERROR " + header,
      "terminate called after throwing an instance of 'X'\n",
      "terminate called after throwing an instance of 'X'\n  what():  y\nmore\n",
      "frame #0: f\n",
      "libc++abi: terminating due to uncaught exception of type X: y\n",
      "thread 'main' panicked at a.rs:1:1:\n",
      "thread '",
      "panic: x [recovered]\n\tpanic: y\n",
      "Exception in thread \"main\" X\n\tat f\nCaused by: Y\n",
      "Fatal Python error: Aborted\n\nThread 0x1\n  File a\n",
      "E1122 10:00:00.000000 1 a.cc:1] x\nmore\n",
      "[rank1]:[E1122 10:00:00.000000000 a.cpp:1] x\n",
      "[rank1]:",
      "[rank1]: ",
      "[a1]:[b2]:\n",
      "F1122 10:00:00.000000 1 a.cc:1] x\nmore\n",
      "a:1:2 [0] NCCL WARN Connection closed by remote peer x\n",
      "all_reduce 1 of group world: rank 2 (n, pid 1) died\n",
      "rank 1 (",
      "rank 1 and ",
      "SyntaxError: x\n",
      "\r",
      "\x1b[",
      "\x1b]0;",
      "│",
  };
  return list;
}

TEST(LastWordsOfHostileBytes, TakeTimeInProportionToTheLines) {
  constexpr size_t kLooksPerLine = 100;  // Some 20 finders read each line, a few of them twice.
  for (const std::string& text : unfinished()) {
    for (const std::string& all :
         {repeated_to_the_tail(text), text + repeated_to_the_tail("\n"),
          text + repeated_to_the_tail("x\n"), text + repeated_to_the_tail("  x\n"),
          text + repeated_to_the_tail("[rank1]: x\n")}) {
      const MessageLines lines(all);
      find_all(lines);
      EXPECT_LE(lines.looks(), kLooksPerLine * (lines.size() + 1)) << text;
    }
  }
}

TEST(LastWordsOfHostileBytes, AreLinesOfTheTail) {
  for (const std::string& text : unfinished()) {
    const std::string all = repeated_to_the_tail(text);
    for (const ErrorMessage& message : error_messages(all)) {
      ASSERT_LE(message.end, all.size()) << text;
      ASSERT_LT(message.begin, message.end) << text;
      ASSERT_EQ(message.text.find('\n'), std::string::npos) << text;
    }
  }
}

TEST(LastWordsOfHostileBytes, AreShort) {
  const std::string chain =
      "Traceback (most recent call last):\n  File \"a\"\nA: " + std::string(9000, 'x') +
      "\n\nThe above exception was the direct cause of the following exception:\n\n";
  const std::string all = chain + chain + "Traceback (most recent call last):\n  File \"a\"\nB: " +
                          std::string(9000, 'y') + "\n";
  const std::string words = last_words(all);
  EXPECT_LE(words.size(), 500U);
  EXPECT_NE(words.find(" (caused by A: xxx"), std::string::npos) << words;
}

}  // namespace
}  // namespace muster
