// Ranks for the matrix of stops, beside live/programs/stop_saver.py.
//
//   stop_saver                      trains until TERM or INT, then saves for a second, in steps;
//                                   for each its helper process serves a batch
//   stop_saver profile PROGRAM...   runs the program, passes TERM and INT on to it, waits for its
//                                   end and writes a report
//   stop_saver signal PID...        sends CONT and TERM to each without a pause, as the daemons of
//                                   engines and service managers do; ends at the end of its input
//
// $STOPS is the folder for their files: ready.RANK, save.RANK, report.RANK, and lost.RANK with the
// reason if there is no save. A second signal makes the saver give up, as many programs do, but one
// that the profiler passes on does not count. $SHIELDED: the helper ignores TERM and INT.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr int kParts = 10;
constexpr useconds_t kPartUs = 100'000;
constexpr unsigned kLifeS = 300;  // In case the matrix itself is killed.
const char* const kProfiled = "STOP_SAVER_PROFILED";

std::atomic<int> told = 0;
std::atomic<bool> told_by_profiler = false;
std::atomic<pid_t> profiled = 0;
bool has_profiler = false;

std::string path_of(const char* what) {
  return std::string(getenv("STOPS")) + "/" + what + "." + getenv("RANK");
}

// Writes the file whole or not at all.
void write_file(const char* what, const std::string& text) {
  const std::string path = path_of(what);
  const std::string draft = path + ".draft";
  FILE* file = fopen(draft.c_str(), "w");
  if (file == nullptr) exit(5);
  fputs(text.c_str(), file);
  if (fclose(file) != 0 || rename(draft.c_str(), path.c_str()) != 0) exit(5);
}

[[noreturn]] void lose(const char* why) {
  write_file("lost", why);
  _exit(4);
}

void handle(void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action{};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

void on_stop(int, siginfo_t* info, void*) {
  if (has_profiler && info->si_pid == getppid())
    told_by_profiler = true;
  else
    ++told;
}

void pass_on(int signal, siginfo_t*, void*) {
  if (profiled > 0) kill(profiled, signal);
}

// Starts the helper, which serves a batch every 100 ms, and returns its pipe.
int start_helper() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) exit(5);
  if (fork() != 0) {
    close(ends[1]);
    return ends[0];
  }
  close(ends[0]);
  ::signal(SIGPIPE, SIG_DFL);
  const auto disposition = getenv("SHIELDED") != nullptr ? SIG_IGN : SIG_DFL;
  ::signal(SIGTERM, disposition);
  ::signal(SIGINT, disposition);
  while (write(ends[1], "b", 1) == 1)
    usleep(kPartUs);
  _exit(0);
}

void take_batch(int helper) {
  char batch = 0;
  if (read(helper, &batch, 1) != 1) lose("helper ended");
  if (told > 1) lose("told twice");
}

int run_saver() {
  has_profiler = getenv(kProfiled) != nullptr;
  const int helper = start_helper();
  handle(on_stop);
  alarm(kLifeS);
  take_batch(helper);
  write_file("ready", "");
  while (told == 0 && !told_by_profiler)
    take_batch(helper);
  for (int part = 0; part < kParts; ++part) {
    printf("saving part %d\n", part);
    if (fflush(stdout) != 0) lose("console gone");
    take_batch(helper);
  }
  write_file("save", "saved\n");
  return 0;
}

int run_profiler(char** program) {
  sigset_t stops;
  sigemptyset(&stops);
  sigaddset(&stops, SIGTERM);
  sigaddset(&stops, SIGINT);
  sigprocmask(SIG_BLOCK, &stops, nullptr);
  handle(pass_on);
  setenv(kProfiled, "1", 1);
  const pid_t child = fork();
  if (child == 0) {
    sigprocmask(SIG_UNBLOCK, &stops, nullptr);
    execvp(program[0], program);
    _exit(127);
  }
  profiled = child;
  sigprocmask(SIG_UNBLOCK, &stops, nullptr);
  int status = 0;
  while (waitpid(child, &status, 0) != child)
    continue;
  usleep(3 * kPartUs);
  write_file("report", "profile\n");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int signal_all(char** pids) {
  for (; *pids != nullptr; ++pids) {
    kill(atoi(*pids), SIGCONT);
    kill(atoi(*pids), SIGTERM);
  }
  getchar();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 && std::string(argv[1]) == "profile") return run_profiler(argv + 2);
  if (argc > 2 && std::string(argv[1]) == "signal") return signal_all(argv + 2);
  return run_saver();
}
