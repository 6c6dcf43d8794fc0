#include "agent/output/pty.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <termios.h>

namespace muster {
namespace {

tl::unexpected<Error> pty_error(const char* step) {
  const char* remedy = errno == EMFILE ? "raise the limit of open files (ulimit -n)"
                                       : "send muster's output through `| cat` to run without";
  return fail(ExitCode::environment, fmt::format("cannot open a terminal for a worker: {}: {}; {}",
                                                 step, std::strerror(errno), remedy));
}

bool make_pty_raw(int fd) {
  termios modes{};
  if (::tcgetattr(fd, &modes) != 0) return false;
  ::cfmakeraw(&modes);
  return ::tcsetattr(fd, TCSANOW, &modes) == 0;
}

}  // namespace

Result<StreamEnds> open_pty(int like_fd) {
  StreamEnds pty;
  pty.ours.reset(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!pty.ours) return pty_error("posix_openpt");
  if (::grantpt(pty.ours.get()) != 0 || ::unlockpt(pty.ours.get()) != 0) {
    return pty_error("unlockpt");
  }
  // TIOCGPTPEER needs no path, so it works in containers with another /dev/pts.
  pty.theirs.reset(::ioctl(pty.ours.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!pty.theirs) return pty_error("TIOCGPTPEER");
  if (!make_pty_raw(pty.theirs.get())) return pty_error("tcsetattr");
  copy_window_size(like_fd, pty.ours.get());
  return pty;
}

void copy_window_size(int from_fd, int to_fd) {
  winsize size{};
  if (::ioctl(from_fd, TIOCGWINSZ, &size) == 0) ::ioctl(to_fd, TIOCSWINSZ, &size);
}

}  // namespace muster
