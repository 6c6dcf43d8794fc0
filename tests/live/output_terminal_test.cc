// A launcher on a terminal: the test holds the master side and acts as the user's screen.
#include <sys/ioctl.h>
#include <termios.h>

#include "agent/output/pty.h"
#include "tests/live/output_harness.h"

namespace muster {

namespace {

class OutputTerminal : public testing::Test {
 protected:
  OutputTerminal() : screen_(open_pty(-1).value()) { resize_screen(24, 80); }

  void resize_screen(unsigned short rows, unsigned short columns) {
    winsize size{};
    size.ws_row = rows;
    size.ws_col = columns;
    ASSERT_EQ(::ioctl(screen_.ours.get(), TIOCSWINSZ, &size), 0);
  }
  OutputOptions options() const {
    OutputOptions options;
    options.console_out = screen_.theirs.get();
    options.console_err = screen_.theirs.get();
    return options;
  }
  std::string shown_until(const std::string& text) { return read_until(screen_.ours.get(), text); }

  StreamEnds screen_;
};

const char* const kWhatAmI =
    "test -t 1 && echo out is a terminal; test -t 2 && echo err is a terminal; echo end";

TEST_F(OutputTerminal, AWorkerSeesATerminalOnBothStreams) {
  OutputHarness harness(options());
  harness.run_workers({kWhatAmI});
  EXPECT_EQ(shown_until("end\n"), "out is a terminal\nerr is a terminal\nend\n");
}

TEST_F(OutputTerminal, EachStreamFollowsItsOwnConsole) {
  ConsolePipe pipe;
  OutputOptions mixed = options();
  mixed.console_out = pipe.write_end.get();
  OutputHarness harness(mixed);
  harness.run_workers({kWhatAmI});
  EXPECT_EQ(read_until(pipe.read_end.get(), "end\n"), "err is a terminal\nend\n");
}

TEST_F(OutputTerminal, ATeedStreamIsNoTerminal) {
  OutputOptions teed = options();
  teed.log.tee.all = Streams::out;
  OutputHarness harness(teed);
  harness.run_workers({kWhatAmI});
  EXPECT_EQ(shown_until("end\n"), "[default0]:err is a terminal\n[default0]:end\n");
}

TEST_F(OutputTerminal, BytesPassWithoutOutputProcessing) {
  OutputHarness harness(options());
  harness.run_workers({"printf '\\033[1mbold\\033[0m\\tx\\r50%%\\004\\003\\n'"});
  EXPECT_EQ(shown_until("\n"), "\x1b[1mbold\x1b[0m\tx\r50%\x04\x03\n");
}

TEST_F(OutputTerminal, TheWindowSizeFollowsTheUsersTerminal) {
  OutputHarness harness(options());
  harness.open(1);
  const Gate gate;
  harness.spawn(0, "stty size <&1; read x < " + gate.path() + "; stty size <&2");
  EXPECT_EQ(shown_until("\n"), "24 80\n");
  resize_screen(50, 132);
  harness.output().resize();
  harness.output().say("resized");
  EXPECT_EQ(shown_until("resized\n"), "resized\n");
  gate.open();
  EXPECT_EQ(shown_until("\n"), "50 132\n");
  harness.wait_all();
  harness.drain();
}

TEST_F(OutputTerminal, LastWordsAreNotLostWhenTheWorkerEnds) {
  OutputHarness harness(options());
  for (int i = 0; i < 20; i++) {
    harness.run_workers({"printf 'last words'"});
    EXPECT_EQ(shown_until("words"), i == 0 ? "last words" : "\nlast words");
  }
}

TEST_F(OutputTerminal, ManyLinesComeWholeAndInOrder) {
  OutputHarness harness(options());
  harness.open(2);
  harness.spawn(0, "seq -f 'a %.0f' 1 20000");
  harness.spawn(1, "seq -f 'b %.0f' 1 20000");
  std::string text;
  std::thread screen([&] { text = shown_until("\nall\n"); });
  harness.wait_all();
  harness.drain();
  harness.output().say("all");
  screen.join();
  int a = 0;
  int b = 0;
  for (const std::string& line : lines_of(text)) {
    if (line.starts_with("a ")) {
      EXPECT_EQ(line, "a " + std::to_string(++a));
    } else if (line.starts_with("b ")) {
      EXPECT_EQ(line, "b " + std::to_string(++b));
    } else {
      EXPECT_EQ(line, "all");
    }
  }
  EXPECT_EQ(a, 20000);
  EXPECT_EQ(b, 20000);
}

TEST_F(OutputTerminal, TheUsersTerminalKeepsItsModes) {
  termios before{};
  ASSERT_EQ(::tcgetattr(screen_.theirs.get(), &before), 0);
  const int flags = ::fcntl(screen_.theirs.get(), F_GETFL);
  {
    OutputHarness harness(options());
    harness.run_workers({"stty raw -echo <&1; echo x"});
    shown_until("x\n");
  }
  termios after{};
  ASSERT_EQ(::tcgetattr(screen_.theirs.get(), &after), 0);
  EXPECT_EQ(before.c_oflag, after.c_oflag);
  EXPECT_EQ(before.c_lflag, after.c_lflag);
  EXPECT_EQ(::fcntl(screen_.theirs.get(), F_GETFL), flags);
}

}  // namespace

}  // namespace muster
