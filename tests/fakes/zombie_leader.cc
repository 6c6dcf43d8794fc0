// A process whose main thread has ended while another thread still runs: /proc shows it as a
// zombie, which it is not. It ignores SIGTERM, leads its own session, and creates the file named by
// its first argument once it runs.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

namespace {

void* run_on(void* path) {
  close(open(static_cast<const char*>(path), O_CREAT | O_WRONLY, 0600));
  while (true)
    pause();
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  signal(SIGTERM, SIG_IGN);
  setsid();
  pthread_t thread;
  pthread_create(&thread, nullptr, run_on, argv[1]);
  pthread_exit(nullptr);
}
