#include "agent/process/stop_receivers.h"

#include <csignal>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/wait_for.h"

namespace muster {
namespace {

uint64_t bits(std::initializer_list<int> signals) {
  uint64_t mask = 0;
  for (const int signal : signals)
    mask |= uint64_t{1} << (signal - 1);
  return mask;
}

// Processes by pid, in the order in which they were started; each names its parent.
class Tree {
 public:
  Tree& add(pid_t parent, SignalUse use) {
    ProcessEntry entry;
    entry.pid = static_cast<pid_t>(tree_.size()) + 1;
    entry.parent = parent;
    tree_.push_back(entry);
    uses_[entry.pid] = std::move(use);
    return *this;
  }
  std::vector<pid_t> receivers(int signal) const { return all(signal).receivers; }
  StopReceivers all(int signal) const {
    return stop_receivers(tree_, 1, signal, [this](pid_t pid) { return uses_.at(pid); });
  }

 private:
  std::vector<ProcessEntry> tree_;
  std::map<pid_t, SignalUse> uses_;
};

using Pids = std::vector<pid_t>;

const SignalUse kSaver{.caught = bits({SIGTERM, SIGINT}), .program = "python3.11"};
const SignalUse kPlain{.caught = bits({SIGINT}), .program = "python3.11"};
const SignalUse kTool{.program = "sleep"};
const SignalUse kDash{.caught = bits({SIGCHLD, SIGINT}), .waits = true, .program = "dash"};
const SignalUse kTrap{.caught = bits({SIGCHLD, SIGINT, SIGTERM}), .waits = true, .program = "bash"};

TEST(StopReceivers, AWorkerThatHandlesTheSignalIsTheOnlyReceiver) {
  EXPECT_EQ(Tree().add(0, kSaver).add(1, kSaver).add(1, kTool).receivers(SIGTERM), Pids{1});
}

TEST(StopReceivers, AreEmptyIfNoProcessHandlesTheSignal) {
  EXPECT_EQ(Tree().add(0, kPlain).receivers(SIGTERM), Pids{});
  EXPECT_EQ(Tree().add(0, kDash).add(1, kPlain).receivers(SIGTERM), Pids{});
}

TEST(StopReceivers, AreEmptyIfOnlyADataLoaderHandlesTheSignal) {
  EXPECT_EQ(Tree().add(0, kPlain).add(1, kSaver).receivers(SIGTERM), Pids{});
}

TEST(StopReceivers, AreTheFirstHandlersBelowShellsAndWaitingWrappers) {
  SignalUse wrapper = kPlain;
  wrapper.waits = true;
  for (const SignalUse& outer : {kDash, wrapper}) {
    const Tree tree = Tree().add(0, outer).add(1, wrapper).add(2, kSaver).add(3, kSaver);
    EXPECT_EQ(tree.receivers(SIGTERM), Pids{3});
  }
}

TEST(StopReceivers, IncludeAHandlerInEachBranchBelowAShell) {
  EXPECT_EQ(Tree().add(0, kDash).add(1, kSaver).add(1, kSaver).add(1, kTool).receivers(SIGTERM),
            (Pids{2, 3}));
}

TEST(StopReceivers, AWaitingWrapperThatCatchesOnlySigintDoesNotHandleIt) {
  SignalUse wrapper = kPlain;
  wrapper.waits = true;
  EXPECT_EQ(Tree().add(0, wrapper).add(1, kPlain).receivers(SIGINT), Pids{2});
  EXPECT_EQ(Tree().add(0, kPlain).add(1, kPlain).receivers(SIGINT), Pids{1});
  wrapper.caught |= bits({SIGTERM});
  EXPECT_EQ(Tree().add(0, wrapper).add(1, kPlain).receivers(SIGINT), Pids{1});
}

TEST(StopReceivers, AShellWithATrapGetsTheSignalAfterItsCommand) {
  EXPECT_EQ(Tree().add(0, kTrap).add(1, kSaver).add(2, kTool).receivers(SIGTERM), (Pids{2, 1}));
  EXPECT_EQ(Tree().add(0, kTrap).add(1, kTool).add(2, kTool).receivers(SIGTERM), (Pids{2, 3, 1}));
  EXPECT_EQ(Tree().add(0, kTrap).receivers(SIGTERM), Pids{1});
}

TEST(StopReceivers, ABackgroundJobIsLeftToTheTrapOfItsShell) {
  SignalUse job = kSaver;
  job.ignored = bits({SIGINT, SIGQUIT});
  EXPECT_EQ(Tree().add(0, kTrap).add(1, job).receivers(SIGTERM), Pids{1});
  EXPECT_EQ(Tree().add(0, kTrap).add(1, job).all(SIGTERM).left_to_traps, Pids{2});
  EXPECT_EQ(Tree().add(0, kDash).add(1, job).all(SIGINT).left_to_traps, Pids{});
  SignalUse shell = kTrap;  // Started in the background itself.
  shell.ignored = bits({SIGINT, SIGQUIT});
  EXPECT_EQ(Tree().add(0, shell).add(1, job).receivers(SIGTERM), (Pids{2, 1}));
  job.own_null = true;
  EXPECT_EQ(Tree().add(0, shell).add(1, job).receivers(SIGTERM), Pids{1});
}

TEST(StopReceivers, AWrapperThatSignalsItsGroupDoesNotGetTheSignal) {
  for (const std::string program : {"timeout", "make"}) {
    SignalUse wrapper = kSaver;
    wrapper.program = program;
    EXPECT_EQ(Tree().add(0, wrapper).add(1, kSaver).add(2, kTool).receivers(SIGTERM), Pids{2});
    EXPECT_EQ(Tree().add(0, wrapper).add(1, kTool).receivers(SIGTERM), Pids{});
  }
}

TEST(StopReceivers, ABlockedSignalCountsAsHandledUnlessItIsIgnored) {
  SignalUse init{.blocked = ~uint64_t{0}, .program = "tini"};
  EXPECT_EQ(Tree().add(0, init).add(1, kSaver).receivers(SIGTERM), Pids{1});
  init.ignored = bits({SIGINT});
  EXPECT_EQ(Tree().add(0, init).receivers(SIGINT), Pids{});
  const SignalUse unshare{.blocked = bits({SIGTERM}), .waits = true, .program = "unshare"};
  EXPECT_EQ(Tree().add(0, unshare).add(1, kSaver).receivers(SIGTERM), Pids{2});
}

TEST(StopReceivers, SignalUseIsReadFromProc) {
  const pid_t pid = fork();
  if (pid == 0) {
    execlp("sh", "sh", "-c", "trap : TERM; trap '' USR1; sleep 1000", nullptr);
    _exit(1);
  }
  ASSERT_TRUE(test::wait_for([&] { return signal_use_of(pid).waits; }, "the shell waits"));
  const SignalUse use = signal_use_of(pid);
  EXPECT_EQ(use.caught & bits({SIGTERM, SIGUSR2}), bits({SIGTERM}));
  EXPECT_EQ(use.ignored & bits({SIGUSR1, SIGUSR2}), bits({SIGUSR1}));
  EXPECT_NE(use.program, "");
  for (const ProcessEntry& child : descendants_of(pid, {}))
    kill(child.pid, SIGKILL);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  EXPECT_EQ(signal_use_of(pid).program, "");
}

}  // namespace
}  // namespace muster
