// Lifelines of real processes and threads: the end of each holder is reported once.
#include "worker_lib/watch/lifeline.h"

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker_lib/watch/process_life.h"

namespace muster::worker {
namespace {

using namespace std::chrono_literals;

// The ids that were cut, and how often.
class Cuts {
 public:
  void note(uint64_t id) {
    const std::lock_guard lock(mutex_);
    ++counts_[id];
    changed_.notify_all();
  }
  bool wait(size_t ids) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 20s, [&] { return counts_.size() >= ids; });
  }
  std::map<uint64_t, int> counts() {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, int> counts_;
};

Lifeline opened(const Lifeline& line) {
  return Lifeline::open(UniqueFd(fcntl(line.fd(), F_DUPFD_CLOEXEC, 0))).value();
}

// Forks a process that holds the lifeline, says so, and does `then`.
pid_t start_holder(Lifeline& line, const std::function<void()>& then) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    line.hold();
    EXPECT_EQ(write(ends[1], "1", 1), 1);
    then();
    _exit(0);
  }
  close(ends[1]);
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 1);
  close(ends[0]);
  return pid;
}

int reaped(pid_t pid) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return status;
}

TEST(Lifeline, TellsOfAKilledProcess) {
  Lifeline line = Lifeline::make().value();
  const pid_t pid = start_holder(line, [] { pause(); });
  Cuts cuts;
  LifelineWatch watch([&](uint64_t id) { cuts.note(id); });
  watch.add(7, opened(line));
  kill(pid, SIGKILL);
  EXPECT_TRUE(cuts.wait(1));
  EXPECT_TRUE(is_exiting(pid));
  reaped(pid);
  EXPECT_EQ(cuts.counts(), (std::map<uint64_t, int>{{7, 1}}));
}

TEST(Lifeline, TellsAtOnceOfAProcessThatHasEnded) {
  Lifeline line = Lifeline::make().value();
  reaped(start_holder(line, [] {}));
  Cuts cuts;
  LifelineWatch watch([&](uint64_t id) { cuts.note(id); });
  watch.add(1, opened(line));
  EXPECT_TRUE(cuts.wait(1));
}

TEST(Lifeline, TellsEveryWatchThoughTheKernelWakesOne) {
  Lifeline line = Lifeline::make().value();
  const pid_t pid = start_holder(line, [] { pause(); });
  Cuts cuts;
  std::vector<std::unique_ptr<LifelineWatch>> watches;
  for (uint64_t id = 0; id < 8; ++id) {
    watches.push_back(std::make_unique<LifelineWatch>([&](uint64_t one) { cuts.note(one); }));
    watches.back()->add(id, opened(line));
  }
  kill(pid, SIGKILL);
  EXPECT_TRUE(cuts.wait(8));
  reaped(pid);
}

TEST(Lifeline, ThatIsReleasedTellsNothing) {
  Lifeline line = Lifeline::make().value();
  Lifeline other = Lifeline::make().value();
  const pid_t leaves = start_holder(line, [&] { line.release(); });
  const pid_t dies = start_holder(other, [] { pause(); });
  Cuts cuts;
  LifelineWatch watch([&](uint64_t id) { cuts.note(id); });
  watch.add(1, opened(line));
  watch.add(2, opened(other));
  reaped(leaves);
  kill(dies, SIGKILL);
  EXPECT_TRUE(cuts.wait(1));
  reaped(dies);
  EXPECT_EQ(cuts.counts(), (std::map<uint64_t, int>{{2, 1}}));
}

TEST(Lifeline, ThatIsRemovedTellsNothing) {
  Lifeline line = Lifeline::make().value();
  Lifeline other = Lifeline::make().value();
  const pid_t removed = start_holder(line, [] { pause(); });
  const pid_t dies = start_holder(other, [] { pause(); });
  Cuts cuts;
  LifelineWatch watch([&](uint64_t id) { cuts.note(id); });
  watch.add(1, opened(line));
  watch.add(2, opened(other));
  watch.remove(1);
  kill(removed, SIGKILL);
  reaped(removed);
  kill(dies, SIGKILL);
  EXPECT_TRUE(cuts.wait(1));
  reaped(dies);
  EXPECT_EQ(cuts.counts(), (std::map<uint64_t, int>{{2, 1}}));
}

TEST(Lifeline, IsCutByAnExecAlthoughTheProcessGoesOn) {
  Lifeline line = Lifeline::make().value();
  const pid_t pid = start_holder(line, [] { execl("/bin/sleep", "sleep", "100", nullptr); });
  Cuts cuts;
  LifelineWatch watch([&](uint64_t id) { cuts.note(id); });
  watch.add(1, opened(line));
  EXPECT_TRUE(cuts.wait(1));
  EXPECT_FALSE(is_exiting(pid));
  kill(pid, SIGKILL);
  reaped(pid);
}

TEST(Lifeline, ForkedChildrenAreNoPartOfIt) {
  Lifeline line = Lifeline::make().value();
  Lifeline other = Lifeline::make().value();
  const pid_t parent = start_holder(line, [] {
    for (int i = 0; i < 100; ++i) {
      if (const pid_t child = fork(); child == 0)
        _exit(0);
      else
        waitpid(child, nullptr, 0);
    }
    pause();
  });
  const pid_t dies = start_holder(other, [] { pause(); });
  Cuts cuts;
  LifelineWatch watch([&](uint64_t id) { cuts.note(id); });
  watch.add(1, opened(line));
  watch.add(2, opened(other));
  kill(parent, SIGSTOP);
  kill(parent, SIGCONT);
  kill(dies, SIGKILL);
  EXPECT_TRUE(cuts.wait(1));
  reaped(dies);
  EXPECT_EQ(cuts.counts(), (std::map<uint64_t, int>{{2, 1}}));
  kill(parent, SIGKILL);
  EXPECT_TRUE(cuts.wait(2));
  reaped(parent);
}

// More than one thread can wait for; every third is removed before its holder ends.
TEST(Lifeline, TellsOnceOfEachOfManyHolders) {
  constexpr size_t kHolders = 300;
  std::vector<Lifeline> lines;
  std::vector<std::thread> holders;
  std::mutex mutex;
  std::condition_variable changed;
  size_t holding = 0;
  bool end = false;
  for (size_t i = 0; i < kHolders; ++i)
    lines.push_back(Lifeline::make().value());
  for (Lifeline& line : lines) {
    holders.emplace_back([&] {
      line.hold();
      std::unique_lock lock(mutex);
      ++holding;
      changed.notify_all();
      changed.wait(lock, [&] { return end; });
    });
  }
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return holding == kHolders; });
  }
  Cuts cuts;
  LifelineWatch watch([&](uint64_t id) { cuts.note(id); });
  std::map<uint64_t, int> expected;
  for (size_t i = 0; i < kHolders; ++i)
    watch.add(i, opened(lines[i]));
  for (size_t i = 0; i < kHolders; ++i) {
    if (i % 3 == 0) {
      watch.remove(i);
    } else {
      expected[i] = 1;
    }
  }
  {
    const std::lock_guard lock(mutex);
    end = true;
  }
  changed.notify_all();
  for (std::thread& holder : holders)
    holder.join();
  EXPECT_TRUE(cuts.wait(expected.size()));
  EXPECT_EQ(cuts.counts(), expected);
}

TEST(Lifeline, RefusesWhatIsNone) {
  EXPECT_FALSE(Lifeline::open(UniqueFd()));
  EXPECT_FALSE(Lifeline::open(UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC))));
  const UniqueFd unsealed(memfd_create("unsealed", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(unsealed.get(), sizeof(pthread_mutex_t)), 0);
  EXPECT_FALSE(Lifeline::open(unsealed));
}

}  // namespace
}  // namespace muster::worker
