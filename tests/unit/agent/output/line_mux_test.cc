#include "agent/output/line_mux.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/unit/instants.h"

namespace muster {

namespace {

// A mux whose console is a string, which tests compare whole.
class MuxConsole {
 public:
  explicit MuxConsole(int streams) {
    for (int i = 0; i < streams; i++)
      mux.open();
  }

  void feed(int stream, std::string_view bytes, int ms) {
    mux.feed(stream, bytes, at_ms(ms), pieces_);
    flush();
  }
  void tick(int ms) {
    mux.tick(at_ms(ms), pieces_);
    flush();
  }
  void close(int stream, int ms) {
    mux.close(stream, at_ms(ms), pieces_);
    flush();
  }

  LineMux mux;
  std::string shown;

 private:
  void flush() {
    for (const std::string_view piece : pieces_)
      shown += piece;
    pieces_.clear();
  }
  LineMux::Pieces pieces_;
};

TEST(LineMux, WholeLinesPassAtOnceAndUnchanged) {
  MuxConsole console(2);
  console.feed(0, "one\ntwo\n", 0);
  console.feed(1, std::string_view("\xff\0\x1b[31mred\r\n", 12), 0);
  EXPECT_EQ(console.shown, std::string("one\ntwo\n\xff\0\x1b[31mred\r\n", 20));
  EXPECT_EQ(console.mux.next_deadline(), kNever);
}

TEST(LineMux, WholeLinesPassInTheCallersOwnMemory) {
  LineMux mux;
  const int stream = mux.open();
  const std::string_view bytes = "a\nb\n";
  LineMux::Pieces pieces;
  mux.feed(stream, bytes, at_ms(0), pieces);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces.front().data(), bytes.data());
}

TEST(LineMux, APartialLineWaitsForItsEnd) {
  MuxConsole console(2);
  console.feed(0, "hel", 0);
  console.feed(1, "other\n", 1);
  console.feed(0, "lo\nwor", 2);
  EXPECT_EQ(console.shown, "other\nhello\n");
  console.feed(0, "ld\n", 3);
  EXPECT_EQ(console.shown, "other\nhello\nworld\n");
}

TEST(LineMux, APromptAppearsAfterAQuietPeriod) {
  MuxConsole console(1);
  console.feed(0, "Name", 0);
  console.feed(0, "? ", 50);
  EXPECT_EQ(console.mux.next_deadline(), at_ms(150));
  console.tick(149);
  EXPECT_EQ(console.shown, "");
  console.tick(150);
  EXPECT_EQ(console.shown, "Name? ");
  EXPECT_EQ(console.mux.next_deadline(), kNever);
}

TEST(LineMux, ABarThatNeverPausesAppearsAfterItsFirstUnshownByte) {
  MuxConsole console(1);
  for (int ms = 0; ms <= 90; ms += 10)
    console.feed(0, fmt::format("\r{}%", ms), ms);
  EXPECT_EQ(console.mux.next_deadline(), at_ms(100));
  console.tick(100);
  EXPECT_EQ(console.shown, "\r0%\r10%\r20%\r30%\r40%\r50%\r60%\r70%\r80%\r90%");
  console.feed(0, "\r100%", 110);
  EXPECT_TRUE(console.shown.ends_with("\r90%\r100%"));
}

TEST(LineMux, OthersAreHeldWhileALineIsUnfinished) {
  MuxConsole console(2);
  console.feed(0, "Name? ", 0);
  console.tick(100);
  console.feed(0, "par", 200);
  console.feed(1, "log\n", 300);
  EXPECT_EQ(console.shown, "Name? par");
  EXPECT_EQ(console.mux.next_deadline(), at_ms(1200));
  console.feed(0, "tial\n", 400);
  EXPECT_EQ(console.shown, "Name? partial\nlog\n");
}

TEST(LineMux, AnOwnerThatIsQuietForASecondGivesWayToOthersThatWait) {
  MuxConsole console(2);
  console.feed(0, "Name? ", 0);
  console.tick(100);
  console.feed(1, "log\n", 300);
  console.tick(999);
  EXPECT_EQ(console.shown, "Name? ");
  console.tick(1000);
  EXPECT_EQ(console.shown, "Name? \nlog\n");
  console.feed(0, "rest\n", 1100);
  EXPECT_EQ(console.shown, "Name? \nlog\nrest\n");
}

TEST(LineMux, AnOwnerKeepsTheConsoleWhileNoOtherStreamWaits) {
  MuxConsole console(2);
  console.feed(0, "Name? ", 0);
  console.tick(100);
  console.tick(60000);
  console.feed(0, "Bob\n", 60001);
  EXPECT_EQ(console.shown, "Name? Bob\n");
}

TEST(LineMux, AnUnfinishedLineOfAnotherStreamWaitsForItsOwnQuietPeriod) {
  MuxConsole console(2);
  console.feed(0, "A? ", 0);
  console.tick(100);
  console.feed(1, "B? ", 5000);
  EXPECT_EQ(console.shown, "A? ");
  EXPECT_EQ(console.mux.next_deadline(), at_ms(5100));
  console.tick(5100);
  EXPECT_EQ(console.shown, "A? \nB? ");
  EXPECT_EQ(console.mux.owner(), 1);
}

TEST(LineMux, ABarGivesWayAfterAShortPause) {
  MuxConsole console(2);
  console.feed(0, "\r10%", 0);
  console.tick(100);
  console.feed(0, "\r20%", 200);
  console.feed(1, "log\n", 210);
  EXPECT_EQ(console.shown, "\r10%\r20%");
  EXPECT_EQ(console.mux.next_deadline(), at_ms(220));
  console.tick(220);
  EXPECT_EQ(console.shown, "\r10%\r20%\nlog\n");
}

TEST(LineMux, ABarThatNeverPausesGivesWayAfterASecond) {
  MuxConsole console(2);
  for (int ms = 0; ms <= 100; ms += 10)
    console.feed(0, "\r0%", ms);
  console.tick(100);
  console.feed(1, "log\n", 101);
  for (int ms = 110; ms <= 1100; ms += 10)
    console.feed(0, "\r1%", ms);
  EXPECT_TRUE(console.shown.ends_with("\r1%\nlog\n"));
  EXPECT_EQ(console.mux.owner(), -1);
}

TEST(LineMux, TwoBarsRedrawInPlace) {
  MuxConsole console(2);
  console.feed(0, "\rA 1%", 0);
  console.feed(1, "\rB 1%", 10);
  console.tick(110);
  console.feed(0, "\rA 2%", 200);
  console.tick(300);
  EXPECT_EQ(console.shown, "\rA 1%\rB 1%\rA 2%");
}

TEST(LineMux, ABarThatEndsInAReturnNeedsNoNewlineBeforeAnotherBar) {
  MuxConsole console(2);
  console.feed(0, "A 1%\r", 0);
  console.feed(1, "B 1%\r", 0);
  console.tick(100);
  EXPECT_EQ(console.shown, "A 1%\rB 1%\r");
  console.feed(0, "whole\n", 200);
  EXPECT_EQ(console.shown, "A 1%\rB 1%\r\nwhole\n");
}

TEST(LineMux, ALineAfterABarIsNoBar) {
  MuxConsole console(2);
  console.feed(0, "Name? ", 0);
  console.tick(100);
  console.feed(1, "\r1%", 200);
  console.feed(1, "\nask", 250);
  console.feed(0, "Bob\n", 260);
  console.feed(1, "? ", 300);
  EXPECT_EQ(console.shown, "Name? Bob\n\r1%\n");
  EXPECT_EQ(console.mux.next_deadline(), at_ms(400));
}

TEST(LineMux, ALongLineWithAReturnInItIsNoBar) {
  MuxConsole console(2);
  console.feed(0, "\r", 0);
  console.tick(100);
  console.feed(0, std::string(LineMux::kLineMax, 'x'), 200);
  console.feed(1, "log\n", 300);
  EXPECT_EQ(console.mux.next_deadline(), at_ms(1200));
  console.feed(0, "\n", 400);
  EXPECT_TRUE(console.shown.ends_with("x\nlog\n"));
}

TEST(LineMux, ALineOverOneMebibyteTakesTheConsole) {
  MuxConsole console(2);
  const std::string chunk(size_t{512} << 10, 'x');
  console.feed(0, chunk, 0);
  console.feed(0, chunk, 1);
  console.feed(1, "early\n", 2);
  EXPECT_EQ(console.shown, "early\n");
  console.feed(0, "y", 3);
  EXPECT_EQ(console.shown, "early\n" + chunk + chunk + "y");
  console.feed(1, "held\n", 4);
  console.feed(0, chunk, 5);
  console.feed(0, "end\n", 6);
  EXPECT_EQ(console.shown, "early\n" + chunk + chunk + "y" + chunk + "end\nheld\n");
}

TEST(LineMux, AStreamIsNotReadWhileItsHeldOutputIsAtTheLimit) {
  MuxConsole console(2);
  console.feed(0, "Name? ", 0);
  console.tick(100);
  const std::string lines(LineMux::kHeldMax - 1, 'x');
  console.feed(1, lines, 200);
  EXPECT_TRUE(console.mux.wants(1));
  console.feed(1, "\n", 201);
  EXPECT_FALSE(console.mux.wants(1));
  EXPECT_TRUE(console.mux.wants(0));
  console.feed(0, "Bob\n", 202);
  EXPECT_TRUE(console.mux.wants(1));
  EXPECT_EQ(console.shown, "Name? Bob\n" + lines + "\n");
}

TEST(LineMux, TheTailOfAnEndedStreamIsSeparatedFromWhatFollows) {
  MuxConsole console(2);
  console.feed(0, "last words", 0);
  console.close(0, 1);
  EXPECT_EQ(console.shown, "last words");
  EXPECT_EQ(console.mux.next_deadline(), kNever);
  console.feed(1, "go on\n", 2);
  EXPECT_EQ(console.shown, "last words\ngo on\n");
}

TEST(LineMux, ATailWaitsForTheOwner) {
  MuxConsole console(3);
  console.feed(0, "Name? ", 0);
  console.tick(100);
  console.feed(1, "line\ntail", 200);
  console.close(1, 201);
  EXPECT_EQ(console.shown, "Name? ");
  console.feed(0, "Bob\n", 300);
  EXPECT_EQ(console.shown, "Name? Bob\nline\ntail");
  console.feed(2, "more\n", 301);
  EXPECT_EQ(console.shown, "Name? Bob\nline\ntail\nmore\n");
}

TEST(LineMux, ClosingEverythingShowsEverything) {
  MuxConsole console(3);
  console.feed(0, "a", 0);
  console.tick(100);
  console.feed(1, "b\nbb", 101);
  console.feed(2, "c", 102);
  for (int stream = 0; stream < 3; stream++)
    console.close(stream, 103);
  EXPECT_EQ(console.shown, "a\nb\nbb\nc");
  EXPECT_EQ(console.mux.next_deadline(), kNever);
}

TEST(LineMux, EmptyFeedsAndEmptyStreamsLeaveNothing) {
  MuxConsole console(1);
  console.feed(0, "", 0);
  console.close(0, 0);
  EXPECT_EQ(console.shown, "");
  EXPECT_EQ(console.mux.open(), 1);
}

}  // namespace

}  // namespace muster
