#include "agent/process/spawn.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/base/unique_fd.h"

namespace muster {
namespace {

// Output and exit code of a script.
struct Ran {
  std::string output;
  int code = -1;
};

// Runs `script` under sh with the other settings of `request`.
Ran run_shell(const std::string& script, SpawnRequest request = {}) {
  int fds[2];
  EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
  request.executable = "/bin/sh";
  request.argv = {"sh", "-c", script};
  request.environment.push_back("PATH=/usr/bin:/bin");
  request.stdout_fd = fds[1];
  const auto process = spawn(request);
  close(fds[1]);
  EXPECT_TRUE(process) << process.error().message;
  Ran ran;
  char buffer[4096];
  ssize_t n = 0;
  while ((n = read(fds[0], buffer, sizeof buffer)) > 0)
    ran.output.append(buffer, static_cast<size_t>(n));
  close(fds[0]);
  siginfo_t info{};
  EXPECT_EQ(waitid(P_PID, static_cast<id_t>(process->pid), &info, WEXITED), 0);
  EXPECT_EQ(info.si_pid, process->pid);
  ran.code = info.si_status;
  return ran;
}

Error spawn_error(const std::string& executable) {
  SpawnRequest request;
  request.executable = executable;
  request.argv = {executable};
  const auto process = spawn(request);
  EXPECT_FALSE(process);
  // A failed spawn leaves no child behind.
  siginfo_t info{};
  EXPECT_EQ(waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT), -1);
  EXPECT_EQ(errno, ECHILD);
  return process ? Error{} : process.error();
}

class SpawnFiles : public testing::Test {
 protected:
  SpawnFiles() {
    std::string pattern = (std::filesystem::temp_directory_path() / "spawn_test_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~SpawnFiles() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name, const std::string& content, mode_t mode) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << content;
    chmod(path.c_str(), mode);
    return path;
  }

  std::string folder_;
};

TEST(Spawn, GivesArgumentsAndExactlyTheEnvironmentAskedFor) {
  SpawnRequest request;
  request.environment = {"ONLY=this one"};
  EXPECT_EQ(
      run_shell("echo \"$ONLY\"; env | grep -cv '^\\(PATH\\|PWD\\|SHLVL\\|_\\|OLDPWD\\)='", request)
          .output,
      "this one\n1\n");
}

TEST(Spawn, TheProgramLeadsItsOwnSessionAndGroup) {
  EXPECT_EQ(
      run_shell(
          "set -- $(cut -d' ' -f5,6 /proc/self/stat); [ $$ = $1 ] && [ $$ = $2 ] && echo leads")
          .output,
      "leads\n");
}

TEST(Spawn, NoDescriptorButTheStandardOnesReachesTheProgram) {
  const int leaky = open("/dev/null", O_RDONLY);  // No close-on-exec, on purpose.
  ASSERT_GE(leaky, 3);
  // The script opens no pipe and lists no folder: those would be descriptors of the shell itself.
  EXPECT_EQ(
      run_shell("i=0; while [ $i -lt 64 ]; do [ -e /proc/$$/fd/$i ] && echo $i; i=$((i+1)); done")
          .output,
      "0\n1\n2\n");
  close(leaky);
}

TEST(Spawn, PassesTheKeptDescriptorUnderItsNumber) {
  const UniqueFd record(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 100));
  ASSERT_GE(record.get(), 100);
  SpawnRequest request;
  request.kept_fd = record.get();
  EXPECT_EQ(
      run_shell("i=3; while [ $i -lt 128 ]; do [ -e /proc/$$/fd/$i ] && echo $i; i=$((i+1)); done",
                request)
          .output,
      std::to_string(record.get()) + "\n");
  EXPECT_EQ(fcntl(record.get(), F_GETFD), FD_CLOEXEC);  // The caller's own is unchanged.
}

TEST(Spawn, NamesTheStepThatFailsForADescriptorThatIsNotOpen) {
  SpawnRequest request;
  request.executable = "/bin/true";
  request.argv = {"true"};
  request.kept_fd = 999;
  const auto process = spawn(request);
  ASSERT_FALSE(process);
  EXPECT_EQ(process.error().message,
            "cannot start /bin/true: fcntl(F_SETFD) failed: Bad file descriptor");
}

TEST(Spawn, StandardDescriptorsMayBeSwapped) {
  // Each source is the other's target: spawn() must overwrite neither before it is copied.
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  const int saved = dup(STDERR_FILENO);
  dup2(fds[1], STDERR_FILENO);
  SpawnRequest request;
  request.executable = "/bin/sh";
  request.argv = {"sh", "-c", "echo to-stdout; exit 0"};
  request.stdout_fd = STDERR_FILENO;
  request.stderr_fd = STDOUT_FILENO;
  const auto process = spawn(request);
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(fds[1]);
  ASSERT_TRUE(process);
  char buffer[64] = {};
  EXPECT_EQ(read(fds[0], buffer, sizeof buffer), 10);
  EXPECT_STREQ(buffer, "to-stdout\n");
  close(fds[0]);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(process->pid), &info, WEXITED);
}

TEST(Spawn, EmptiesTheSignalMaskAndIgnoresOnlyWhatTheUserIgnored) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  signal(SIGUSR2, SIG_IGN);
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  const char* const kShow = "grep -E 'Sig(Ign|Blk)' /proc/self/status | tr -d '\\t\\n'";
  EXPECT_EQ(run_shell(kShow).output, "SigBlk:0000000000000000SigIgn:0000000000000800");
  SpawnRequest nohup;
  nohup.keep_hangup_ignored = true;
  EXPECT_EQ(run_shell(kShow, nohup).output, "SigBlk:0000000000000000SigIgn:0000000000000801");
  nohup.ignored_signals = {SIGUSR1};
  EXPECT_EQ(run_shell(kShow, nohup).output, "SigBlk:0000000000000000SigIgn:0000000000000a01");
  sigset_t after;
  sigprocmask(SIG_SETMASK, &before, &after);
  EXPECT_TRUE(sigismember(&after, SIGUSR1));  // The caller's own mask is unchanged.
  signal(SIGPIPE, SIG_DFL);
  signal(SIGHUP, SIG_DFL);
  signal(SIGUSR2, SIG_DFL);
}

TEST(Spawn, AffinityAndDescriptorLimitAreSetBeforeTheProgramRuns) {
  cpu_set_t mine;
  sched_getaffinity(0, sizeof mine, &mine);
  int first = 0;
  while (!CPU_ISSET(first, &mine))
    ++first;
  SpawnRequest request;
  request.cpus = {first};
  request.descriptor_limit = 123;
  EXPECT_EQ(
      run_shell("grep Cpus_allowed_list /proc/self/status | cut -f2; ulimit -n", request).output,
      std::to_string(first) + "\n123\n");
}

TEST(Spawn, TheProgramDiesWithItsParent) {
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  const pid_t middle = fork();
  ASSERT_GE(middle, 0);
  if (middle == 0) {
    SpawnRequest request;
    request.executable = "/bin/sleep";
    request.argv = {"sleep", "1000"};
    request.stdout_fd = fds[1];  // Open for as long as the sleeper lives.
    _exit(spawn(request) ? 0 : 1);
  }
  close(fds[1]);
  int status = 0;
  waitpid(middle, &status, 0);
  EXPECT_EQ(status, 0);
  char byte = 0;
  EXPECT_EQ(read(fds[0], &byte, 1), 0);  // End of file: no process holds the pipe.
  close(fds[0]);
}

TEST(Spawn, AMissingProgramIsNotFound) {
  const Error error = spawn_error("/nowhere/prog");
  EXPECT_EQ(error.code, ExitCode::not_found);
  EXPECT_EQ(
      error.message,
      "cannot execute /nowhere/prog: the file, or the interpreter that it names, does not exist");
}

TEST_F(SpawnFiles, SayWhyTheyCannotBeExecuted) {
  const std::string text = file("text", "just words\n", 0755);
  EXPECT_EQ(spawn_error(text).code, ExitCode::cannot_execute);
  EXPECT_NE(spawn_error(text).message.find("no `#!` line"), std::string::npos);
  EXPECT_EQ(spawn_error(folder_).code, ExitCode::cannot_execute);
  EXPECT_NE(spawn_error(folder_).message.find("permission denied"), std::string::npos);
  const std::string lost = file("lost", "#!/no/such/interpreter\n", 0755);
  EXPECT_EQ(spawn_error(lost).code, ExitCode::not_found);
}

TEST(Spawn, SaysThatTheArgumentsAreTooLarge) {
  SpawnRequest request;
  request.executable = "/bin/true";
  request.argv = {"true", std::string(4 << 20, 'x')};
  const auto process = spawn(request);
  ASSERT_FALSE(process);
  EXPECT_EQ(process.error().code, ExitCode::environment);
  EXPECT_NE(process.error().message.find("too large"), std::string::npos);
}

TEST(Spawn, NamesTheStepThatFailsForACpuThatMayNotBeUsed) {
  SpawnRequest request;
  request.executable = "/bin/true";
  request.argv = {"true"};
  request.cpus = {8191};
  const auto process = spawn(request);
  ASSERT_FALSE(process);
  EXPECT_EQ(process.error().message,
            "cannot start /bin/true: sched_setaffinity failed: Invalid argument");
}

TEST(CurrentEnvironment, IsWhatGetenvSees) {
  setenv("MUSTER_TEST_VARIABLE", "a=b", 1);
  const Environment environment = current_environment();
  EXPECT_EQ(environment.at("MUSTER_TEST_VARIABLE"), "a=b");
  unsetenv("MUSTER_TEST_VARIABLE");
  EXPECT_FALSE(current_environment().contains("MUSTER_TEST_VARIABLE"));
}

}  // namespace
}  // namespace muster
