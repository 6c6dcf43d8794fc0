// A worker that becomes another user, as by `sudo`: the test makes it set-user-ID root, and it
// takes on root's whole identity, so that its parent may not signal it. Prints its pid, and ends
// once the file named by its argument exists or the test's folder is gone.
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
