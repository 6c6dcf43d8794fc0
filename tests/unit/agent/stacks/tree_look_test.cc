#include "agent/stacks/tree_look.h"

#include <csignal>
#include <functional>
#include <map>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/wait_for.h"

namespace muster {
namespace {

// A process group whose leader, the "rank", runs `program`; killed in the destructor.
class StuckRank {
 public:
  explicit StuckRank(const std::function<void()>& program) : pid_(fork()) {
    if (pid_ == 0) {
      setpgid(0, 0);
      program();
      _exit(0);
    }
    setpgid(pid_, pid_);
  }
  ~StuckRank() {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  StuckRank(const StuckRank&) = delete;
  StuckRank& operator=(const StuckRank&) = delete;

  pid_t pid() const { return pid_; }
  RankStacks look() const {
    size_t left = TreeLook::kProcessesMax;
    const TreeLook tree(pid_, descendants_of(getpid(), {}), left);
    test::pause_for(std::chrono::milliseconds(50), "two looks make a state");
    RankStacks stacks;
    tree.finish({}).add_to(stacks);
    return stacks;
  }
  // Waits until waits_lines() are these; "N" stands for each number.
  void expect(const std::vector<std::string>& lines) const {
    std::vector<std::string> said;
    const auto are_said = [&] {
      said = waits_lines(look());
      for (std::string& line : said) {
        std::string text;
        for (const char c : line) {
          if (!is_digit(c)) {
            text += c;
          } else if (!text.ends_with('N')) {
            text += 'N';
          }
        }
        line = text;
      }
      return said == lines;
    };
    test::wait_for(are_said, "the lines");
    EXPECT_EQ(said, lines);
  }

 private:
  pid_t pid_;
};

pid_t start_child(const std::function<void()>& program) {
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_NAME, "helper");
    program();
    _exit(0);
  }
  return pid;
}

struct SilentFifo {
  SilentFifo() {
    EXPECT_NE(mkdtemp(folder), nullptr);
    path = std::string(folder) + "/fifo";
    EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
  }
  ~SilentFifo() {
    unlink(path.c_str());
    rmdir(folder);
  }
  SilentFifo(const SilentFifo&) = delete;
  SilentFifo& operator=(const SilentFifo&) = delete;

  void open_for_ever() const { open(path.c_str(), O_RDONLY); }

  char folder[32] = "/tmp/muster-tree-XXXXXX";
  std::string path;
};

TEST(LifeOfTree, ChildrenThatWaitAlikeAreToldOnce) {
  const SilentFifo fifo;
  const StuckRank rank([&] {
    for (int i = 0; i < 3; ++i)
      start_child([&] { fifo.open_for_ever(); });
    pause();
  });
  rank.expect({"child N (helper) and N alike: blocked in openat()"});
}

TEST(LifeOfTree, AChildThatWaitsForItsNextWorkIsNotTold) {
  const SilentFifo fifo;
  const StuckRank rank([&] {
    start_child([] {
      while (true)
        poll(nullptr, 0, 5000);
    });
    start_child([&] { fifo.open_for_ever(); });
    pause();
  });
  rank.expect({"child N (helper): blocked in openat()"});
  EXPECT_EQ(rank.look().processes.size(), 3U);
}

TEST(LifeOfTree, ADeadChildIsToldWithTheWayItEnded) {
  const StuckRank rank([] {
    start_child([] { raise(SIGKILL); });
    start_child([] { _exit(3); });
    start_child([] {});
    pause();
  });
  rank.expect({"child N (helper) was killed by SIGKILL", "child N (helper) exited with N"});
}

TEST(LifeOfTree, AShellIsToldByTheCommandThatItWaitsFor) {
  const StuckRank rank([] {
    start_child([] { execl("/bin/sh", "sh", "-c", "sleep 300; true", nullptr); });
    wait(nullptr);
  });
  rank.expect({"child N (sleep): sleeping in clock_nanosleep()"});
}

TEST(LifeOfTree, TheHolderOfAFileLockIsNamed) {
  const SilentFifo fifo;
  const std::string path = std::string(fifo.folder) + "/lock";
  const UniqueFd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(flock(lock.get(), LOCK_EX), 0);
  const StuckRank waits_for_flock([&] { flock(open(path.c_str(), O_RDWR), LOCK_EX); });
  waits_for_flock.expect({"its file lock is held by process N (process_tests)"});
  EXPECT_EQ(waits_for_flock.look().processes.at(0).lock_holder, getpid());

  flock(lock.get(), LOCK_UN);
  ASSERT_EQ(lockf(lock.get(), F_LOCK, 0), 0);
  const StuckRank waits_for_lockf([&] { lockf(open(path.c_str(), O_RDWR), F_LOCK, 0); });
  waits_for_lockf.expect({"its file lock is held by process N (process_tests)"});
  unlink(path.c_str());
}

TEST(LifeOfTree, APipeWhoseWriterIsGoneIsHeldByItsReaderAlone) {
  const SilentFifo fifo;
  int ends[2] = {-1, -1};
  const auto read_own_pipe = [&ends] {
    EXPECT_EQ(pipe(ends), 0);
    const pid_t writer = start_child([] {});
    waitpid(writer, nullptr, 0);
  };
  const StuckRank alone([&] {
    read_own_pipe();
    char byte = 0;
    _exit(static_cast<int>(read(ends[0], &byte, 1)));
  });
  alone.expect({"no other process holds the other end of the pipe or socket that it reads"});
  const StuckRank with_sibling([&] {
    read_own_pipe();
    start_child([&] { fifo.open_for_ever(); });  // May still write.
    char byte = 0;
    _exit(static_cast<int>(read(ends[0], &byte, 1)));
  });
  with_sibling.expect({"child N (helper): blocked in openat()"});
}

TEST(LifeOfTree, TooManyChildrenAreCounted) {
  const SilentFifo fifo;
  constexpr int kChildren = static_cast<int>(TreeLook::kProcessesMax) + 10;
  const StuckRank rank([&] {
    for (int i = 0; i < kChildren; ++i)
      start_child([&] { fifo.open_for_ever(); });
    pause();
  });
  rank.expect({"child N (helper) and N alike: blocked in openat()", "and N other children"});
  EXPECT_EQ(rank.look().processes_left_out, 11);
}

TEST(LifeOfTree, AWorkerOfAPoolIsIdleIfItsFramesSayThatItWaitsForWork) {
  const std::vector<StackFrame> waits = {
      {"get", "/usr/lib/python3.11/multiprocessing/queues.py", 1},
      {"_bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", 2},
      {"main", "/home/me/train.py", 3}};
  TreeFindings tree;
  for (const pid_t pid : {1, 2, 3, 4})
    tree.processes.push_back(
        {.pid = pid, .name = "python", .doing = pid < 4 ? "blocked" : "running"});
  tree.may_be_idle = {2, 3};
  EXPECT_EQ(tree.worth_reading(4), (std::vector<pid_t>{2, 4}));
  RankStacks stacks;
  stacks.processes = {{.pid = 2, .name = {}, .frames = waits},
                      {.pid = 4, .name = {}, .frames = waits}};
  tree.add_to(stacks);
  std::vector<bool> idle;
  for (const ProcessStack& process : stacks.processes)
    idle.push_back(process.is_idle);
  EXPECT_EQ(idle, (std::vector<bool>{false, true, true, false}));
  EXPECT_EQ(stacks.processes[1].frames, waits);
}

TEST(LockHolder, IsTheProcessAboveTheWaiterInTheTable) {
  const std::string_view locks =
      "1: POSIX  ADVISORY  WRITE 40 08:01:11 0 EOF\n"
      "1: -> POSIX  ADVISORY  WRITE 41 08:01:11 0 EOF\n"
      "1:  -> POSIX  ADVISORY  READ 42 08:01:11 0 EOF\n"
      "2: OFDLCK ADVISORY  WRITE -1 08:01:12 0 EOF\n"
      "2: -> POSIX  ADVISORY  WRITE 43 08:01:12 0 EOF\n"
      "3: FLOCK  ADVISORY  WRITE 44 08:01:13 0 EOF\n"
      "3: -> FLOCK  ADVISORY  WRITE 45 08:01:13 0 EOF\n"
      "4: FLOCK  ADVISORY  WRITE 46 08:01:14 0 EOF\n"
      "4: -> FLOCK  ADVISORY  WRITE 45 08:01:14 0 EOF\n"
      "5: -> FLOCK\n";
  const std::map<pid_t, pid_t> holders = {{41, 40}, {42, 40}, {43, 0}, {45, 0}, {40, 0}, {99, 0}};
  for (const auto& [waiter, holder] : holders)
    EXPECT_EQ(lock_holder(locks, waiter), holder) << waiter;
  EXPECT_EQ(lock_holder("", 1), 0);
}

}  // namespace
}  // namespace muster
