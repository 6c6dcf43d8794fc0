#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/hang/life.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/listening_socket.h"
#include "tests/wait_for.h"

namespace muster::hang {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Pipe {
  Pipe() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(pipe(fds), 0);
    reader.reset(fds[0]);
    writer.reset(fds[1]);
  }
  // Blocks until it has read one byte.
  void read_from() const {
    char byte = 0;
    EXPECT_EQ(read(reader.get(), &byte, 1), 1);
  }

  UniqueFd reader;
  UniqueFd writer;
};

// Two connected sockets; one end is outside of a child that has closed it.
struct Sockets {
  Sockets() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    own.reset(ends[0]);
    other.reset(ends[1]);
  }

  UniqueFd own;
  UniqueFd other;
};

// A process group whose leader runs `program`; killed in the destructor.
class Child {
 public:
  explicit Child(const std::function<void()>& program) : pid_(fork()) {
    if (pid_ == 0) {
      setpgid(0, 0);
      program();
      _exit(0);
    }
    setpgid(pid_, pid_);
  }
  ~Child() {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

void compute() {
  for (std::atomic<int> times = 0;;)
    ++times;
}

// Forks a process that runs `program` in the same process group.
pid_t start(const std::function<void()>& program) {
  const pid_t pid = fork();
  if (pid == 0) {
    program();
    _exit(0);
  }
  return pid;
}

void run_python(const char* program) {
  execlp("python3", "python3", "-c", program, nullptr);
}

// Waits until three pairs of looks in a row show `state`, the last with `part` in its description,
// and returns that; after 60 s, returns "never, but: " and the last description.
std::string words_once(LifeState state, pid_t root, std::string_view part = "",
                       pid_t recorder = 0) {
  const auto patience = std::chrono::steady_clock::now() + seconds(60);
  LifeLook before = look_at(root, recorder);
  for (int times = 0;;) {
    test::pause_for(milliseconds(50), "two looks make a state");
    LifeLook after = look_at(root, recorder);
    const Life life = life_of(before, after);
    times = life.state == state ? times + 1 : 0;
    const std::string words = describe(life);
    if (times >= 3 && contains(words, part)) return words;
    if (std::chrono::steady_clock::now() > patience) return "never, but: " + words;
    before = std::move(after);
  }
}

TEST(LifeLook, AReadOfAPipeIsBlocked) {
  const Pipe silent;
  const Child child([&] { silent.read_from(); });
  EXPECT_EQ(words_once(LifeState::blocked, child.pid()),
            "blocked in read() of a pipe (descriptor " + std::to_string(silent.reader.get()) + ")");
}

TEST(LifeLook, ALockThatIsNeverReleasedIsBlocked) {
  const Child child([] {
    std::timed_mutex lock;
    lock.lock();
    std::thread([&] { lock.lock(); }).join();
  });
  EXPECT_EQ(words_once(LifeState::blocked, child.pid()),
            "blocked in futex() (a lock, or another thread)");
}

TEST(LifeLook, AFileLockOfAnotherProcessIsBlockedAndTheFileIsNamed) {
  char path[] = "/tmp/muster-life-XXXXXX";
  const UniqueFd held(mkstemp(path));
  ASSERT_EQ(flock(held.get(), LOCK_EX), 0);
  const Child child([&] { flock(open(path, O_RDWR), LOCK_EX); });
  EXPECT_EQ(words_once(LifeState::blocked, child.pid())
                .find(std::string("blocked in flock() of ") + path + " (descriptor "),
            0U);
  unlink(path);
}

TEST(LifeLook, ALongTimerIsSleep) {
  const Child child([] { test::pause_for(seconds(300), "a long timer"); });
  EXPECT_EQ(words_once(LifeState::sleeping, child.pid()), "sleeping in clock_nanosleep()");
}

TEST(LifeLook, ATimeOutPassedByValueIsSleep) {
  const Child child([] { poll(nullptr, 0, 300'000); });
  const std::string words = words_once(LifeState::sleeping, child.pid());
  EXPECT_EQ(words.find("sleeping in p"), 0U) << words;  // poll(), or ppoll() instead.
}

TEST(LifeLook, APollWithShortTimeOutsPolls) {
  const Child child([] {
    while (true)
      poll(nullptr, 0, 10);
  });
  const std::string words = words_once(LifeState::asking, child.pid());
  EXPECT_EQ(words.find("polling "), 0U) << words;
}

TEST(LifeLook, AnEndlessLoopRuns) {
  const Child child(compute);
  const std::string words = words_once(LifeState::running, child.pid());
  EXPECT_EQ(words.find("running: "), 0U) << words;
}

TEST(LifeLook, AFrozenProcessIsStoppedUntilItsCgroupIsThawed) {
  struct Freezer {
    std::string mount, file, freeze, thaw;
  };
  int frozen = 0;
  for (const auto& [mount, file, freeze, thaw] :
       {Freezer{"/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED"},
        Freezer{"/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0"},
        Freezer{"/sys/fs/cgroup", "cgroup.freeze", "1", "0"}}) {
    const std::string group = mount + "/muster-test-" + std::to_string(getpid());
    if (mkdir(group.c_str(), 0755) != 0) continue;
    if (access((group + "/" + file).c_str(), W_OK) == 0) {
      const Pipe silent;
      const Child child([&] { silent.read_from(); });
      std::ofstream(group + "/cgroup.procs") << child.pid();
      std::ofstream(group + "/" + file) << freeze;
      EXPECT_EQ(words_once(LifeState::stopped, child.pid()),
                "frozen with its cgroup (resume it with `echo " + thaw + " >" + group + "/" + file +
                    "`)");
      std::ofstream(group + "/" + file) << thaw;
      EXPECT_EQ(words_once(LifeState::blocked, child.pid()).find("blocked in read()"), 0U);
      std::ofstream(mount + "/cgroup.procs") << child.pid();
      ++frozen;
    }
    EXPECT_EQ(rmdir(group.c_str()), 0);
  }
  if (frozen == 0) GTEST_SKIP() << "no cgroup can be frozen here";
}

TEST(LifeLook, AStoppedProcessIsStoppedUntilItGoesOn) {
  const Pipe silent;
  const Child child([&] { silent.read_from(); });
  kill(child.pid(), SIGSTOP);
  EXPECT_EQ(words_once(LifeState::stopped, child.pid()), "stopped (as by SIGSTOP)");
  kill(child.pid(), SIGCONT);
  EXPECT_EQ(words_once(LifeState::blocked, child.pid()).find("blocked in read()"), 0U);
}

TEST(LifeLook, AProcessThatHasEndedIsGoneBeforeAndAfterItIsReaped) {
  const Child child([] {});
  EXPECT_EQ(words_once(LifeState::gone, child.pid()), "gone");
  waitpid(child.pid(), nullptr, 0);
  EXPECT_EQ(words_once(LifeState::gone, child.pid()), "gone");
}

TEST(LifeLook, ATracedProcessIsHeldByItsDebuggerRunningOrNot) {
  const Pipe silent;
  const Pipe told;
  const Child debugger([&] {
    pid_t pid = start([&] { silent.read_from(); });
    if (ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) != 0) pid = 0;
    if (write(told.writer.get(), &pid, sizeof pid) < 0) return;
    silent.read_from();
  });
  pid_t traced = 0;
  ASSERT_EQ(read(told.reader.get(), &traced, sizeof traced), static_cast<ssize_t>(sizeof traced));
  if (traced == 0) GTEST_SKIP() << "needs ptrace";
  EXPECT_EQ(words_once(LifeState::traced, traced), "held by a debugger");
  kill(traced, SIGUSR1);  // Stops it until its debugger decides.
  test::wait_for([&] { return look_at(traced).state == 't'; }, "the stop");
  EXPECT_EQ(words_once(LifeState::traced, traced), "held by a debugger");
}

// The parent of vfork() sleeps uninterruptibly, as in a wait for a disk.
TEST(LifeLook, AWaitInTheKernelIsUninterruptibleInEveryThread) {
  const auto stick = [] {
    if (vfork() == 0) {
      while (true)
        pause();
    }
  };
  const Child main_thread(stick);
  EXPECT_EQ(words_once(LifeState::uninterruptible, main_thread.pid()).find("uninterruptible in "),
            0U);
  std::string wchan;
  std::ifstream("/proc/" + std::to_string(main_thread.pid()) + "/wchan") >> wchan;
  EXPECT_EQ(look_at(main_thread.pid()).wchan, wchan == "0" ? "" : wchan);
  const Child other_thread([&] {
    std::thread([&] {
      prctl(PR_SET_NAME, "saver");
      stick();
    }).join();
  });
  const std::string words = words_once(LifeState::uninterruptible, other_thread.pid());
  EXPECT_EQ(words.find("uninterruptible: thread "), 0U) << words;
  EXPECT_NE(words.find("(saver)"), words.npos) << words;
}

TEST(LifeLook, AComputingChildIsRunningAndNamed) {
  const Pipe silent;
  const Child child([&] {
    start([] {
      prctl(PR_SET_NAME, "compiler");
      compute();
    });
    silent.read_from();
  });
  const std::string words = words_once(LifeState::running, child.pid(), ", compiler)");
  EXPECT_EQ(words.find("running: "), 0U) << words;
}

TEST(LifeLook, AReaderOfASlowPipeIsRunning) {
  const Pipe drops;
  const Child child([&] {
    std::thread([&] {
      while (write(drops.writer.get(), "x", 1) == 1)
        test::pause_for(milliseconds(20), "the pipe is slow");
    }).detach();
    while (true)
      drops.read_from();
  });
  const std::string words = words_once(LifeState::running, child.pid(), "reads and writes");
  EXPECT_EQ(words.find("running: "), 0U) << words;
}

TEST(LifeLook, AWritingChildIsRunning) {
  const Pipe silent;
  const Child child([&] {
    start([] {
      const int nowhere = open("/dev/null", O_WRONLY);
      const std::string bytes(64 * 1024, 'x');
      while (write(nowhere, bytes.data(), bytes.size()) > 0)
        test::pause_for(milliseconds(10), "the writer is slow");
    });
    silent.read_from();
  });
  const std::string words = words_once(LifeState::running, child.pid(), "reads and writes");
  EXPECT_EQ(words.find("running: "), 0U) << words;
}

TEST(LifeLook, AComputingChildOfAThreadIsRunning) {
  const Pipe silent;
  const Child child([&] {
    std::thread([&] {
      start(compute);
      silent.read_from();
    }).detach();
    silent.read_from();
  });
  EXPECT_EQ(words_once(LifeState::running, child.pid()).find("running: "), 0U);
}

// Another process takes the CPU: SCHED_IDLE has 0.3 % of its weight.
TEST(LifeLook, AComputingChildWithoutACpuIsRunning) {
  cpu_set_t cpu;
  CPU_ZERO(&cpu);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &cpu);
  const auto compute_there = [&] {
    sched_setaffinity(0, sizeof cpu, &cpu);
    compute();
  };
  const Pipe silent;
  const Child hog(compute_there);
  const Child child([&] {
    const sched_param none{};
    start([&] {
      sched_setscheduler(0, SCHED_IDLE, &none);
      compute_there();
    });
    silent.read_from();
  });
  EXPECT_EQ(words_once(LifeState::running, child.pid(), "hardly any"),
            "running: it gets hardly any CPU");
}

TEST(LifeLook, AProcessThatWaitsForAChildHasTheChildsState) {
  const Child shell([] { execl("/bin/sh", "sh", "-c", "sleep 300; true", nullptr); });
  const std::string words = words_once(LifeState::sleeping, shell.pid());
  EXPECT_EQ(words.find("sleeping in clock_nanosleep() (process "), 0U) << words;
  EXPECT_NE(words.find(", sleep)"), words.npos) << words;
}

TEST(LifeLook, AReaderOfAPipeHasTheStateOfTheProcessThatWritesToIt) {
  const Child reader([] {
    const Pipe pipe;
    if (fork() == 0) {
      close(pipe.reader.get());
      sleep(300);
      _exit(0);
    }
    close(pipe.writer.get());
    pipe.read_from();
  });
  const std::string words = words_once(LifeState::sleeping, reader.pid(), "(process ");
  EXPECT_EQ(words.find("sleeping in "), 0U) << words;
}

TEST(LifeLook, PythonThatReadsTheOutputOfACommandHasTheStateOfTheCommand) {
  const Child reader([] {
    run_python(
        "import subprocess\n"
        "subprocess.run(['sh', '-c', 'sleep 300; true'], capture_output=True)\n");
  });
  const std::string words = words_once(LifeState::sleeping, reader.pid(), ", sleep)");
  EXPECT_EQ(words.find("sleeping in "), 0U) << words;
}

TEST(LifeLook, TwoProcessesThatReadFromEachOtherAreBlocked) {
  const Child parent([] {
    int ends[2] = {-1, -1};
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    const int own = fork() == 0 ? 1 : 0;
    close(ends[1 - own]);
    char byte = 0;
    _exit(static_cast<int>(read(ends[own], &byte, 1)));
  });
  EXPECT_EQ(words_once(LifeState::blocked, parent.pid(), "(process ")
                .find("blocked in read() of a socket "),
            0U);
}

TEST(LifeLook, AReaderOfASocketWaitsForAnAnswerFromOutside) {
  const Sockets sockets;
  const int server = sockets.other.get();
  const int client = sockets.own.get();
  const Child asker([&] {
    close(server);
    char byte = 0;
    _exit(static_cast<int>(recv(client, &byte, 1, 0)));
  });
  EXPECT_EQ(words_once(LifeState::asking, asker.pid(), "another process"),
            fmt::format("waiting for an answer in recvfrom() of a socket to another process "
                        "(descriptor {})",
                        client));
}

TEST(LifeLook, AClientOfAServerIsAskingAndTheServerIsNamed) {
  const auto listening = listen_on({{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(listening);
  const SocketAddress server = listening->front().address;
  const Child asker([&] {
    sockaddr_storage raw{};
    const socklen_t size = server.to_sockaddr(raw);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    char byte = 0;
    const bool is_connected = connect(fd, reinterpret_cast<sockaddr*>(&raw), size) == 0;
    _exit(is_connected ? static_cast<int>(recv(fd, &byte, 1, 0)) : 1);
  });
  const std::string words =
      words_once(LifeState::asking, asker.pid(), "socket to " + server.to_string());
  EXPECT_EQ(words.find("waiting for an answer in recvfrom()"), 0U) << words;
}

TEST(LifeLook, AnEventLoopThatWaitsForAServerIsAsking) {
  const Sockets sockets;
  const int server = sockets.other.get();
  const int client = sockets.own.get();
  const Child loop([&] {
    close(server);
    const int epoll = epoll_create1(0);
    epoll_event event{.events = EPOLLIN, .data = {}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, client, &event);
    epoll_wait(epoll, &event, 1, -1);
  });
  EXPECT_NE(words_once(LifeState::asking, loop.pid()).find("a socket to another process"),
            std::string::npos);
}

TEST(LifeLook, AServerThatWaitsForItsClientsIsAsking) {
  const auto listening = listen_on({{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(listening);
  const int listener = listening->front().fd.get();
  ASSERT_EQ(fcntl(listener, F_SETFL, 0), 0);  // Blocking.
  const Child server([&] { accept(listener, nullptr, nullptr); });
  EXPECT_EQ(words_once(LifeState::asking, server.pid()).find("waiting for an answer in accept"),
            0U);
}

TEST(LifeLook, TheProcessThatRecordsDecides) {
  const Pipe silent;
  const Child launcher([&] {
    start([&] { silent.read_from(); });
    test::pause_for(seconds(300), "a long timer");
  });
  EXPECT_EQ(words_once(LifeState::sleeping, launcher.pid()), "sleeping in clock_nanosleep()");
  const LifeLook look = look_at(launcher.pid());
  ASSERT_EQ(look.tree.size(), 2U);
  const auto& [first, last] = std::pair(*look.tree.begin(), *look.tree.rbegin());
  const pid_t recorder = first.first == launcher.pid() ? last.first : first.first;  // Pids wrap.
  const std::string words = words_once(LifeState::blocked, launcher.pid(), "", recorder);
  EXPECT_NE(words.find("(process " + std::to_string(recorder)), words.npos) << words;
}

TEST(LifeLook, TimersOfOtherThreadsDoNotCount) {
  const Pipe silent;
  const Child child([&] {
    std::thread([] { test::pause_for(seconds(300), "a long timer"); }).detach();
    silent.read_from();
  });
  EXPECT_EQ(words_once(LifeState::blocked, child.pid()).find("blocked in read()"), 0U);
}

TEST(LifeLook, AProcessIsFollowedWithoutItsMainThread) {
  const Pipe silent;
  const Child child([&] {
    std::thread([&] { silent.read_from(); }).detach();
    syscall(SYS_exit, 0);  // Ends this thread; pthread_exit() would unwind through the test.
  });
  EXPECT_EQ(words_once(LifeState::blocked, child.pid()).find("blocked in read()"), 0U);
}

TEST(LifeLook, PythonThatSleepsOrReadsIsRecognized) {
  const Child sleeper([] { run_python("import time; time.sleep(300)"); });
  EXPECT_EQ(words_once(LifeState::sleeping, sleeper.pid()).find("sleeping in "), 0U);
  const Pipe silent;
  const Child reader([&] {
    dup2(silent.reader.get(), 0);
    run_python("input()");
  });
  EXPECT_EQ(words_once(LifeState::prompting, reader.pid(), "(descriptor 0)"),
            "waiting for its user in read() of a pipe (descriptor 0)");
}

TEST(LifeLook, APromptOnATerminalWaitsForItsUser) {
  int user = -1;
  int worker = -1;
  ASSERT_EQ(openpty(&user, &worker, nullptr, nullptr, nullptr), 0);
  const UniqueFd users(user);
  const UniqueFd workers(worker);
  const Child asker([&] {
    for (const int fd : {0, 1, 2})
      dup2(worker, fd);
    run_python("import readline; input()");
  });
  const std::string words = words_once(LifeState::prompting, asker.pid(), "(descriptor 0)");
  EXPECT_NE(words.find(" of the terminal /dev/pts/"), std::string::npos) << words;
}

TEST(LifeLook, AChildThatReadsAPipeOfItsParentHasNoUser) {
  const Pipe silent;
  const Child parent([&] {
    if (fork() == 0) {
      dup2(silent.reader.get(), 0);
      char byte = 0;
      _exit(static_cast<int>(read(0, &byte, 1)));
    }
    wait(nullptr);
  });
  EXPECT_EQ(words_once(LifeState::blocked, parent.pid(), "(descriptor 0)")
                .find("blocked in read() of a pipe (descriptor 0) (process "),
            0U);
}

TEST(LifeLook, PythonIsBlockedIfAWaitingCallHoldsItsLock) {
  const Child child([] {
    run_python(
        "import ctypes, threading, time\n"
        "threading.Thread(target=ctypes.PyDLL(None).pause).start()\n"
        "time.sleep(0.1)\n");
  });
  const std::string words = words_once(LifeState::blocked, child.pid(), "polls");
  EXPECT_EQ(words.find("blocked: polls "), 0U) << words;
}

TEST(LifeLook, PythonIsRunningIfAComputationHoldsItsLock) {
  const Pipe told;
  const Child child([&] {
    dup2(told.writer.get(), 1);
    run_python(
        "import os, re, threading, time\n"
        "def search():\n"
        "    os.write(1, b'x')\n"
        "    re.match('(a+)+$', 'a' * 60 + 'b')\n"
        "threading.Thread(target=search).start()\n"
        "time.sleep(0.1)\n");
  });
  told.read_from();  // Python's own start computes too.
  const std::string words = words_once(LifeState::running, child.pid());
  EXPECT_EQ(words.find("running: "), 0U) << words;
}

TEST(LifeLook, AProcessThatAnotherUserMayNotSeeIsUnknown) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to look as another user";
  const Pipe silent;
  const Child child([&] { silent.read_from(); });
  words_once(LifeState::blocked, child.pid());
  const Child stranger([&] {
    if (setresuid(65534, 65534, 65534) != 0) _exit(2);
    const std::string words = words_once(LifeState::unknown, child.pid());
    _exit(words == "its system call is hidden" ? 0 : 1);
  });
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(stranger.pid()), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(info.si_status, 0);
}

}  // namespace
}  // namespace muster::hang
