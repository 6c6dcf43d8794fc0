// A worker that becomes another user, as `sudo` does: set-user-ID root (the test sees to that), it
// takes on root's identity entirely, so that whoever started it may not signal it. Prints its pid,
// and ends when the file that its argument names is there, or the test's folder is no more.
#include <cstdio>
#include <ctime>

#include <unistd.h>

int main(int argc, char** argv) {
  if (argc != 2 || setresuid(0, 0, 0) != 0) return 1;
  std::printf("%d\n", static_cast<int>(getpid()));
  std::fflush(stdout);
  const timespec pause{0, 20'000'000};
  while (access(argv[1], F_OK) != 0 && access(argv[0], F_OK) == 0)
    nanosleep(&pause, nullptr);
  return 0;
}
