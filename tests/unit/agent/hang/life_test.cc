#include "agent/hang/life.h"

#include <functional>

#include <gtest/gtest.h>

namespace muster::hang {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Presence = LifeLook::Presence;
using Change = std::function<void(LifeLook&)>;

constexpr pid_t kRoot = 100;
constexpr pid_t kChild = 101;

SystemCall read_call() {
  return {.is_known = true, .name = "read", .waits_for = WaitsFor::descriptor, .descriptor = 5};
}

SystemCall timed(const char* name, std::optional<Duration> timeout = std::nullopt) {
  return {.is_known = true, .name = name, .has_timer = true, .timeout = timeout};
}

// A process that waits in read() of a pipe, and its child.
LifeLook look_after(Duration time) {
  LifeLook look;
  look.at = Instant(seconds(1000) + time);
  look.root = look.process = look.thread = kRoot;
  look.presence = Presence::visible;
  look.tree[kRoot] = {.start_ticks = 7, .name = "python3", .cpu = seconds(60), .bytes = 1000};
  look.tree[kChild] = {.start_ticks = 8, .name = "loader", .cpu = seconds(30), .bytes = 1000};
  look.state = 'S';
  look.wakeups = 50;
  look.bytes = 900;
  look.call_is_visible = true;
  look.call = read_call();
  look.target = "pipe:[1]";
  return look;
}

// The life seen by two looks: `both` applies to each, `then` happens in between.
Life life(const Change& both, const Change& then = [](LifeLook&) {}, Duration gap = seconds(1)) {
  LifeLook before = look_after({});
  LifeLook after = look_after(gap);
  both(before);
  both(after);
  then(after);
  return life_of(before, after);
}

Change in(const SystemCall& call) {
  return [call](LifeLook& look) { look.call = call; };
}

void nothing(LifeLook&) {}

// A state and its text, to compare a Life with.
struct Words {
  LifeState state = LifeState::unknown;
  std::string text;
};

Words in_words(LifeState state, const std::string& text) {
  return {state, text};
}

bool operator==(const Life& life, const Words& words) {
  return life.state == words.state && describe(life) == words.text;
}

std::ostream& operator<<(std::ostream& out, const Words& words) {
  return out << words.text;
}

TEST(Life, ARankThatDoesNothingIsBlocked) {
  EXPECT_EQ(life(nothing),
            in_words(LifeState::blocked, "blocked in read() of a pipe (descriptor 5)"));
}

// Lets several ranks share one description.
TEST(Life, IsTheSameForRanksThatDoTheSame) {
  const auto pipe = [](const char* target) {
    return life([=](LifeLook& look) { look.target = target; });
  };
  EXPECT_EQ(pipe("pipe:[17]"), pipe("pipe:[18]"));
  EXPECT_EQ(pipe("socket:[17]"), pipe("socket:[18]"));
  EXPECT_NE(pipe("pipe:[17]"), pipe("socket:[17]"));
  EXPECT_NE(pipe("/a"), pipe("/b"));
  SystemCall wait{.is_known = true, .name = "wait4", .waits_for = WaitsFor::child, .child = 7};
  const Life one = life(in(wait));
  wait.child = 8;
  EXPECT_EQ(life(in(wait)), one);
}

TEST(Life, AProcessThatHasEndedIsGone) {
  const auto ended = [](LifeLook& look) { look.presence = Presence::gone; };
  EXPECT_EQ(life(nothing, ended), in_words(LifeState::gone, "gone"));
  EXPECT_EQ(life(ended).state, LifeState::gone);
  EXPECT_EQ(life(nothing, [](LifeLook& look) { look.tree[kRoot].start_ticks = 9; }).state,
            LifeState::gone)
      << "another process with the same pid";
}

TEST(Life, AHiddenProcessIsUnknown) {
  const auto hide = [](LifeLook& look) { look.presence = Presence::hidden; };
  EXPECT_EQ(life(hide), in_words(LifeState::unknown, "its process is hidden"));
  EXPECT_EQ(life(nothing, hide).state, LifeState::unknown);
  EXPECT_EQ(life(nothing, nothing, seconds(0)).state, LifeState::unknown) << "a single look";
  const auto hide_call = [](LifeLook& look) {
    look.call.reset();
    look.call_is_visible = false;
  };
  EXPECT_EQ(life(hide_call), in_words(LifeState::unknown, "its system call is hidden"));
}

TEST(Life, AStoppedRankIsStoppedAndATracedOneIsHeld) {
  EXPECT_EQ(life([](LifeLook& look) { look.state = 'T'; }),
            in_words(LifeState::stopped, "stopped (as by SIGSTOP)"));
  const auto freeze = [](LifeLook& look) {
    look.state = 'D';
    look.thawing = "echo THAWED >/f/freezer.state";
  };
  EXPECT_EQ(life(freeze),
            in_words(LifeState::stopped,
                     "frozen with its cgroup (resume it with `echo THAWED >/f/freezer.state`)"));
  const auto trace = [](LifeLook& look) { look.is_traced = true; };
  EXPECT_EQ(life(trace), in_words(LifeState::traced, "held by a debugger"));
  EXPECT_EQ(life(trace, [](LifeLook& look) { look.tree[kRoot].cpu += seconds(1); }).state,
            LifeState::traced);
}

TEST(Life, AProcessThatComputesIsRunning) {
  const auto compute = [](pid_t pid, Duration cpu) {
    return [=](LifeLook& look) { look.tree[pid].cpu += cpu; };
  };
  EXPECT_EQ(life(nothing, compute(kRoot, milliseconds(990))),
            in_words(LifeState::running, "running: 99 % of a CPU"));
  EXPECT_EQ(life(nothing, compute(kChild, milliseconds(3400))),
            in_words(LifeState::running, "running: 340 % of a CPU (process 101, loader)"));
  EXPECT_EQ(life(nothing, compute(kRoot, milliseconds(50))).state, LifeState::running);
  EXPECT_EQ(life(nothing, compute(kChild, milliseconds(30))).state, LifeState::blocked)
      << "a monitor always uses a little";
  EXPECT_EQ(life(nothing, compute(kRoot, milliseconds(50)), seconds(10)).state, LifeState::blocked);
}

TEST(Life, CpuTimeOfAnEndedChildCountsForItsParent) {
  const auto end_child = [](LifeLook& look) { look.tree.erase(kChild); };
  EXPECT_EQ(life(nothing, end_child).state, LifeState::blocked);
  EXPECT_EQ(life(nothing,
                 [&](LifeLook& look) {
                   end_child(look);
                   look.tree[kRoot].cpu += seconds(30);
                 })
                .state,
            LifeState::running);
}

TEST(Life, ANewProcessHasUsedAllItsCpuTimeSinceTheLastLook) {
  const auto start = [](uint64_t start_ticks) {
    return [=](LifeLook& look) {
      look.tree[kChild] = {.start_ticks = start_ticks, .name = "cc1", .cpu = milliseconds(80)};
    };
  };
  EXPECT_EQ(life(nothing, start(9)),
            in_words(LifeState::running, "running: 8 % of a CPU (process 101, cc1)"));
  EXPECT_EQ(life(nothing, start(8)).state, LifeState::blocked) << "CPU time never decreases";
}

TEST(Life, AProcessThatReadsOrWritesIsRunning) {
  const auto move = [](pid_t pid, uint64_t bytes) {
    return [=](LifeLook& look) { look.tree[pid].bytes += bytes; };
  };
  EXPECT_EQ(life(nothing, move(kChild, 3 << 20)),
            in_words(LifeState::running, "running: reads and writes 3 MiB a second"));
  EXPECT_EQ(life(nothing, move(kChild, 1000)).state, LifeState::blocked) << "a line of a log";
  const auto move_own = [](LifeLook& look) {
    look.bytes += 1;
    look.tree[kRoot].bytes += 1;
  };
  EXPECT_EQ(life(nothing, move_own).state, LifeState::running) << "a slow pipe";
}

TEST(Life, AWakeUpWithoutATimerIsWork) {
  const auto wake = [](LifeLook& look) { look.wakeups += 1; };
  EXPECT_EQ(life(nothing, wake),
            in_words(LifeState::running, "running: woken in read() of a pipe (descriptor 5)"));
  EXPECT_EQ(life(nothing, [](LifeLook& look) { look.process = look.thread = kChild; }),
            in_words(LifeState::running, "running (process 101, loader)"));
}

TEST(Life, GoingToSleepIsNoWakeUp) {
  LifeLook awake = look_after({});
  awake.state = 'R';  // Like a process that a debugger has just released.
  awake.call.reset();
  LifeLook asleep = look_after(seconds(1));
  ++asleep.wakeups;
  EXPECT_EQ(life_of(awake, asleep).state, LifeState::blocked);
  ++asleep.wakeups;
  EXPECT_EQ(life_of(awake, asleep).state, LifeState::running);
  awake.at = asleep.at + seconds(1);
  awake.wakeups = asleep.wakeups;
  EXPECT_EQ(life_of(asleep, awake).state, LifeState::running) << "woken, and not asleep since";
}

TEST(Life, ARunnableProcessIsRunningEvenWithoutACpu) {
  const auto want = [](LifeLook& look) { look.runnable[kChild] = 5; };
  EXPECT_EQ(life(want), in_words(LifeState::running, "running: it gets hardly any CPU"));
  EXPECT_EQ(life(want, [](LifeLook& look) { look.runnable[kChild] += 1; }).state,
            LifeState::blocked)
      << "it slept in between";
  EXPECT_EQ(life(nothing, want).state, LifeState::blocked);
}

TEST(Life, AWaitForADiskIsUninterruptible) {
  const auto stick = [](LifeLook& look) {
    look.state = 'D';
    look.target = "/mnt/data";
    look.wchan = "nfs_wait_bit_killable";
  };
  EXPECT_EQ(life(stick), in_words(LifeState::uninterruptible,
                                  "uninterruptible in read() of /mnt/data "
                                  "(descriptor 5) (nfs_wait_bit_killable)"));
  EXPECT_EQ(life([](LifeLook& look) { look.uninterruptible = {108, "saver", true}; }),
            in_words(LifeState::uninterruptible, "uninterruptible: thread 108 (saver)"));
  EXPECT_EQ(life(stick, [](LifeLook& look) { look.tree[kRoot].cpu += seconds(1); }).state,
            LifeState::running);
}

TEST(Life, AnyTimerOfASecondOrMoreIsSleep) {
  EXPECT_EQ(life(in(timed("poll", seconds(5)))),
            in_words(LifeState::sleeping, "sleeping in poll() with a time-out of 5.0 s"));
  EXPECT_EQ(life(in(timed("poll", seconds(1))), [](LifeLook& look) { ++look.wakeups; }).state,
            LifeState::sleeping);
  EXPECT_EQ(life(in(timed("poll", milliseconds(999)))).state, LifeState::asking);
}

TEST(Life, AHiddenTimerIsAsLongAsTheThreadSleeps) {
  const auto wake = [](uint64_t times) { return [=](LifeLook& look) { look.wakeups += times; }; };
  const Change nap = in(timed("clock_nanosleep"));
  EXPECT_EQ(life(nap), in_words(LifeState::sleeping, "sleeping in clock_nanosleep()"));
  EXPECT_EQ(life(nap, wake(1), milliseconds(990)).state, LifeState::sleeping) << "every second";
  EXPECT_EQ(life(nap, wake(3), seconds(10)).state, LifeState::sleeping);
  EXPECT_EQ(life(nap, wake(2)),
            in_words(LifeState::asking, "polling 2 times a second in clock_nanosleep()"));
}

TEST(Life, AWaitForPythonsLockIsNoPoll) {
  const auto wake = [](uint64_t times) { return [=](LifeLook& look) { look.wakeups += times; }; };
  SystemCall lock = timed("futex");
  lock.waits_for = WaitsFor::thread;
  EXPECT_EQ(life(in(lock), wake(200)),
            in_words(LifeState::blocked,
                     "blocked: polls 200 times a second in futex() (a lock, or another thread)"));
  EXPECT_EQ(life(in(lock), wake(10)).state, LifeState::asking) << "Event.wait(0.1)";
}

TEST(Life, WhoReadsATerminalWaitsForItsUser) {
  SystemCall read{
      .is_known = true, .name = "read", .waits_for = WaitsFor::descriptor, .descriptor = 5};
  const auto from = [](const char* target) {
    return [=](LifeLook& look) { look.target = target; };
  };
  EXPECT_EQ(life(in(read), from("/dev/pts/4")),
            in_words(LifeState::prompting,
                     "waiting for its user in read() of the terminal /dev/pts/4 (descriptor 5)"));
  EXPECT_EQ(life(in(read), from("pipe:[7]")).state, LifeState::blocked);
  read.name = "write";
  EXPECT_EQ(life(in(read), from("/dev/pts/4")).state, LifeState::blocked) << "stopped by Ctrl-S";
}

TEST(Life, AThreadPollsEvenIfSeenAwake) {
  const Change poll = in(timed("futex"));
  const auto met_awake = [](LifeLook& look) {
    look.wakeups += 100;
    look.call.reset();
  };
  EXPECT_EQ(life(poll, met_awake).state, LifeState::asking);
  const auto awake = [](LifeLook& look) { look.call.reset(); };
  EXPECT_EQ(life(awake), in_words(LifeState::running, "running"));
}

TEST(Life, ACallThatMayWaitForAnythingIsUnknown) {
  EXPECT_EQ(life(in({.name = "system call 999"})),
            in_words(LifeState::unknown, "waits in system call 999"));
  EXPECT_EQ(life(in({.is_known = true, .name = "wait4", .waits_for = WaitsFor::child})),
            in_words(LifeState::unknown, "waits in wait4() (a child)"))
      << "the child is hidden, and may compute";
}

TEST(Life, LimitsAreRates) {
  const auto use = [](Duration cpu, uint64_t bytes) {
    return [=](LifeLook& look) {
      look.tree[kChild].cpu += cpu;
      look.tree[kChild].bytes += bytes;
    };
  };
  EXPECT_EQ(life(nothing, use(milliseconds(4), 6000), milliseconds(100)).state, LifeState::blocked);
  EXPECT_EQ(life(nothing, use(milliseconds(6), 0), milliseconds(100)).state, LifeState::running);
  EXPECT_EQ(life(nothing, use({}, 7000), milliseconds(100)).state, LifeState::running);
}

}  // namespace
}  // namespace muster::hang
