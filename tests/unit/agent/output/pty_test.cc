#include "agent/output/pty.h"

#include <array>
#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <termios.h>
#include <unistd.h>

namespace muster {
namespace {

void set_window_size(int fd, unsigned short rows, unsigned short columns) {
  const winsize size{rows, columns, 640, 480};
  ASSERT_EQ(ioctl(fd, TIOCSWINSZ, &size), 0);
}

std::string window_size(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0) return "no terminal";
  return std::to_string(size.ws_row) + "x" + std::to_string(size.ws_col) + " " +
         std::to_string(size.ws_xpixel) + "x" + std::to_string(size.ws_ypixel);
}

// Returns all that can be read without blocking.
std::string readable(int fd) {
  std::string all;
  std::array<char, 4096> buffer{};
  for (pollfd ready{fd, POLLIN, 0}; poll(&ready, 1, 0) == 1 && (ready.revents & POLLIN) != 0;) {
    const ssize_t count = read(fd, buffer.data(), buffer.size());
    if (count <= 0) break;
    all.append(buffer.data(), static_cast<size_t>(count));
  }
  return all;
}

// Every byte, including those that a terminal treats as a newline, an interrupt or an end of file.
std::string every_byte() {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte)
    bytes += static_cast<char>(byte);
  return bytes + "line\nline\r\n\x03\x04\x1a\x11\x13";
}

TEST(Pty, PassesEveryByteUnchangedBothWays) {
  const StreamEnds pty = open_pty(-1).value();
  const std::string bytes = every_byte();
  ASSERT_EQ(write(pty.theirs.get(), bytes.data(), bytes.size()), std::ssize(bytes));
  EXPECT_EQ(readable(pty.ours.get()), bytes);
  ASSERT_EQ(write(pty.ours.get(), bytes.data(), bytes.size()), std::ssize(bytes));
  EXPECT_EQ(readable(pty.theirs.get()), bytes);
  EXPECT_EQ(readable(pty.ours.get()), "") << "the terminal echoes";
}

TEST(Pty, IsATerminalForTheWorker) {
  const StreamEnds pty = open_pty(-1).value();
  EXPECT_EQ(isatty(pty.theirs.get()), 1);
}

TEST(Pty, HasTheSizeOfTheTerminalThatItStandsFor) {
  const StreamEnds screen = open_pty(-1).value();
  EXPECT_EQ(window_size(screen.theirs.get()), "0x0 0x0");
  set_window_size(screen.ours.get(), 24, 80);
  const StreamEnds pty = open_pty(screen.theirs.get()).value();
  EXPECT_EQ(window_size(pty.theirs.get()), "24x80 640x480");
  EXPECT_EQ(window_size(pty.ours.get()), "24x80 640x480");
}

TEST(Pty, CopiesANewSizeAndKeepsItIfThereIsNoTerminal) {
  const StreamEnds screen = open_pty(-1).value();
  const StreamEnds pty = open_pty(screen.theirs.get()).value();
  set_window_size(screen.ours.get(), 50, 132);
  EXPECT_EQ(window_size(pty.theirs.get()), "0x0 0x0");
  copy_window_size(screen.theirs.get(), pty.ours.get());
  EXPECT_EQ(window_size(pty.theirs.get()), "50x132 640x480");
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  for (const int no_terminal : {-1, ends[0]}) {
    copy_window_size(no_terminal, pty.ours.get());
    EXPECT_EQ(window_size(pty.theirs.get()), "50x132 640x480");
  }
  copy_window_size(screen.theirs.get(), ends[1]);
  close(ends[0]);
  close(ends[1]);
}

TEST(Pty, IsNotInheritedAndControlsNoProcess) {
  const StreamEnds pty = open_pty(-1).value();
  for (const int fd : {pty.ours.get(), pty.theirs.get()})
    EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(tcgetsid(pty.theirs.get()), -1);
  EXPECT_EQ(errno, ENOTTY);
}

TEST(Pty, EndsWhenItsOtherSideCloses) {
  StreamEnds pty = open_pty(-1).value();
  ASSERT_EQ(write(pty.theirs.get(), "bye", 3), 3);
  pty.theirs.reset();
  EXPECT_EQ(readable(pty.ours.get()), "bye");
  char byte;
  EXPECT_EQ(read(pty.ours.get(), &byte, 1), -1);
  EXPECT_EQ(errno, EIO);
}

// Limits the process to `room` more descriptors while it lives.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t room) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit low{lowest_free() + room, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

  static rlim_t lowest_free() {
    const UniqueFd fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    return static_cast<rlim_t>(fd.get());
  }

 private:
  rlimit before_{};
};

TEST(Pty, NamesTheStepThatFailsWithoutDescriptorsAndLeavesNoneOpen) {
  const rlim_t lowest_free = FewDescriptors::lowest_free();
  for (const auto& [room, step] :
       {std::pair<rlim_t, std::string>{0, "posix_openpt"}, {1, "TIOCGPTPEER"}}) {
    const FewDescriptors few(room);
    const Result<StreamEnds> pty = open_pty(-1);
    ASSERT_FALSE(pty.has_value());
    EXPECT_EQ(pty.error(), (Error{ExitCode::environment,
                                  "cannot open a terminal for a worker: " + step +
                                      ": Too many open files; raise the limit of open files "
                                      "(ulimit -n)"}));
  }
  EXPECT_EQ(FewDescriptors::lowest_free(), lowest_free);
}

}  // namespace
}  // namespace muster
