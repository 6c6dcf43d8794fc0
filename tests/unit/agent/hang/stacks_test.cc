#include "agent/hang/stacks.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

const StackFrame kRead{"read", "/lib/x86_64-linux-gnu/libc.so.6", 0};
const StackFrame kEval{"_PyEval_EvalFrameDefault", "/usr/bin/python3.11", 0};
const StackFrame kLoadBatch{"load_batch", "/home/me/train.py", 88};
const StackFrame kTrain{"step", "/home/me/train.py", 140};
const StackFrame kWait{"wait", "/venv/lib/python3.11/site-packages/torch/distributed/x.py", 7};

RankStacks rank_in(int rank, std::vector<StackFrame> frames) {
  return {.rank = rank,
          .pid = 100 + rank,
          .process = 100 + rank,
          .threads = {{100 + rank, "main", std::move(frames)}},
          .missing = {}};
}

TEST(Stacks, PythonFramesFollowTheNativeFramesThatPythonCalled) {
  const std::vector<ThreadStack> native = {{12, "worker", {kRead}},
                                           {10, "python3", {kRead, kEval, {"main", "", 0}}}};
  const std::vector<ThreadStack> python = {{10, "MainThread", {kLoadBatch, kTrain}}};
  EXPECT_EQ(merge_stacks(native, python, 10),
            (std::vector<ThreadStack>{{10, "MainThread", {kRead, kLoadBatch, kTrain}},
                                      {12, "worker", {kRead}}}));
}

TEST(Stacks, PythonThreadsWithoutAThreadIdComeLast) {
  const std::vector<ThreadStack> python = {{0, "", {kTrain}}, {0, "MainThread", {kLoadBatch}}};
  EXPECT_EQ(merge_stacks({{10, "python3", {kRead}}}, python, 10),
            (std::vector<ThreadStack>{{10, "MainThread", {kRead, kLoadBatch}}, {0, "", {kTrain}}}));
  EXPECT_EQ(merge_stacks({}, python, 10),
            (std::vector<ThreadStack>{{10, "MainThread", {kLoadBatch}}, {0, "", {kTrain}}}));
}

TEST(Stacks, ALineShowsTheInnermostFrameAndTheUsersFrames) {
  EXPECT_EQ(stack_line({kRead, kWait, kLoadBatch, kEval, kTrain}),
            "read ← load_batch (train.py:88) ← step (train.py:140)");
  EXPECT_EQ(stack_line({kRead, kWait}), "read ← wait (x.py:7)");
  EXPECT_EQ(stack_line({{"", "/opt/a/libfoo.so", 0}, {"main", "/home/me/train", 0}}),
            "? (libfoo.so) ← main (train)");
  EXPECT_EQ(stack_line({kRead, {"", "/usr/bin/python3.11", 0}, kEval}),
            "read ← _PyEval_EvalFrameDefault");
  EXPECT_EQ(stack_line({kRead, {"_find_and_load", "<frozen importlib._bootstrap>", 5}, kTrain}),
            "read ← step (train.py:140)");
  const StackFrame in_header{"all_reduce", "/opt/muster/include/muster/process_group.h", 715};
  EXPECT_EQ(stack_line({kRead, in_header, kTrain}), stack_line({kRead, kTrain}));
  EXPECT_EQ(stack_line({}), "no frames");
}

TEST(Stacks, TextOfAProgramIsSanitized) {
  const std::string text = stacks_text({rank_in(0, {{"a\x1b[2Jb\n", "c\x07.py", 1}})}, true);
  EXPECT_EQ(text, "  rank 0 (pid 100): ab (c.py:1)\n    thread 100 (main)\n      ab (c.py:1)\n");
}

TEST(Stacks, RanksInTheSameFunctionsShareALine) {
  std::vector<RankStacks> ranks = {rank_in(5, {kRead, kLoadBatch})};
  for (const int rank : {0, 1, 3})
    ranks.push_back(rank_in(rank, {kRead, kTrain}));
  ranks[2].missing = "no Python frames: py-spy is not installed";
  ranks.push_back({.rank = 4, .pid = 7, .process = 7, .threads = {}, .missing = "it has ended"});
  EXPECT_EQ(stacks_text(ranks, false),
            "  rank 5 (pid 105): read ← load_batch (train.py:88)\n"
            "  3 ranks (0-1,3): read ← step (train.py:140)\n"
            "  rank 4 (pid 7): it has ended\n"
            "  rank 1 (pid 101): no Python frames: py-spy is not installed\n");
}

const StackFrame kGet{"get", "/usr/lib/python3.11/queue.py", 171};
const StackFrame kItem{"__getitem__", "/home/me/data.py", 12};
const StackFrame kStart{"Process._bootstrap", "/usr/lib/python3.11/multiprocessing/process.py",
                        314};

ProcessStack child_of(pid_t pid, std::string doing, std::vector<StackFrame> frames = {}) {
  return {.pid = pid, .name = "loader", .doing = std::move(doing), .frames = std::move(frames)};
}

TEST(Stacks, WhatTheMainThreadWaitsForFollowsItsLine) {
  RankStacks rank = rank_in(0, {kRead, kTrain});
  rank.processes = {child_of(100, "blocked in flock()"),
                    child_of(101, "blocked in openat()", {kItem, kStart, kTrain}),
                    child_of(102, "blocked in openat()"),
                    child_of(103, "running: 9 % of a CPU", {kLoadBatch, kStart, kTrain}),
                    child_of(104, "sleeping in poll()"),
                    {.pid = 105, .name = "a\x1b[2J\n", .ended = "was killed by SIGKILL"}};
  rank.processes[0].lock_holder = 7;
  rank.processes[0].lock_holder_name = "py\x1b[2Jthon\n";
  rank.processes[0].lock_holder_rank = 1;
  rank.processes[4].is_idle = true;
  const std::string text =
      "  rank 0 (pid 100): read ← step (train.py:140)\n"
      "    its file lock is held by process 7 (python), rank 1\n"
      "    child 101 (loader) and 1 alike: blocked in openat() at __getitem__ (data.py:12)\n"
      "    child 103 (loader): running: 9 % of a CPU at load_batch (train.py:88)\n"
      "    child 105 (a) was killed by SIGKILL\n";
  EXPECT_EQ(stacks_text({rank}, false), text);
  EXPECT_NE(stacks_text({rank}, true).find("    child 104 (loader): sleeping in poll()\n"),
            std::string::npos);
  EXPECT_NE(stacks_text({rank}, true).find("      Process._bootstrap (process.py:314)\n"),
            std::string::npos);

  RankStacks twin = rank_in(1, {kRead, kTrain});
  rank.processes.resize(1);
  EXPECT_EQ(stacks_text({rank, twin}, false),
            "  2 ranks (0-1): read ← step (train.py:140)\n"
            "    rank 0: its file lock is held by process 7 (python), rank 1\n");
}

TEST(Stacks, AMainThreadThatCouldNotBeReadIsToldByItsCall) {
  RankStacks rank{.rank = 0, .pid = 100, .process = 100, .threads = {}, .missing = {}};
  rank.processes = {child_of(100, "blocked in wait4()"), child_of(101, "blocked in openat()")};
  EXPECT_EQ(
      stacks_text({rank}, false),
      "  rank 0 (pid 100): blocked in wait4()\n    child 101 (loader): blocked in openat()\n");
}

TEST(Stacks, FourKindsOfChildrenAreTold) {
  RankStacks rank = rank_in(0, {kRead});
  rank.processes = {child_of(100, "")};
  for (int i = 1; i <= 6; ++i)
    rank.processes.push_back(child_of(100 + i, "in call " + std::to_string(i)));
  const std::vector<std::string> lines = waits_lines(rank);
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(lines[3], "child 104 (loader): in call 4");
  EXPECT_EQ(lines[4], "and 2 other children");
}

TEST(Stacks, ThreadsOfTheProgramAreToldIfTheMainThreadWaitsForOne) {
  RankStacks rank = rank_in(0, {kRead, kTrain});
  rank.threads.push_back({11, "pool", {kRead, kGet}});
  rank.threads.push_back({12, "consumer", {kRead, kGet, kLoadBatch}});
  for (const pid_t thread : {13, 14, 15})
    rank.threads.push_back({thread, "reader", {kRead, kLoadBatch}});
  rank.processes = {child_of(100, "blocked in futex()")};
  EXPECT_EQ(waits_lines(rank), std::vector<std::string>{});
  rank.processes[0].waits_for_thread = true;
  EXPECT_EQ(waits_lines(rank).size(), 3U);
  EXPECT_EQ(waits_lines(rank).front(), "thread 13 (reader): read ← load_batch (train.py:88)");
  rank.threads.resize(3);
  EXPECT_EQ(waits_lines(rank),
            std::vector<std::string>{"thread 12 (consumer): read ← load_batch (train.py:88)"});
  keep_telling_threads(rank);
  EXPECT_EQ(rank.threads.size(), 2U);
}

TEST(Stacks, AThreadInTheSourceOfAnUnstrippedInterpreterIsNotOfTheProgram) {
  RankStacks rank = rank_in(0, {kRead, kTrain});
  rank.threads.push_back({11,
                          "python",
                          {kRead,
                           {"acquire_timed", "./Modules/_threadmodule.c", 98},
                           {"call_function", "Python/ceval.c", 4769},
                           {"pythread_wrapper", "Python/thread_pthread.h", 241}}});
  rank.processes = {child_of(100, "blocked in futex()")};
  rank.processes[0].waits_for_thread = true;
  EXPECT_EQ(waits_lines(rank), std::vector<std::string>{});
}

TEST(Stacks, AWorkerThatWaitsForWorkDoesNoneOfItsOwn) {
  const StackFrame interpreter{"select_poll_poll", "/build/Modules/selectmodule.c", 654};
  EXPECT_TRUE(is_at_work({kRead, kItem, kStart, kTrain}));
  EXPECT_FALSE(is_at_work({kRead, kGet, kStart, kTrain}));
  EXPECT_FALSE(is_at_work({interpreter, kGet, kStart, kTrain}));
  EXPECT_TRUE(is_at_work({kRead, kTrain}));
  EXPECT_FALSE(is_at_work({}));
}

TEST(Stacks, AnotherThreadIsNotShownAsTheMainOne) {
  RankStacks rank = rank_in(0, {kRead});
  rank.threads[0].thread = 101;
  rank.missing = "1 thread: in an uninterruptible sleep";
  EXPECT_EQ(stacks_text({rank}, false),
            "  rank 0 (pid 100): its main thread could not be looked at\n"
            "  rank 0 (pid 100): 1 thread: in an uninterruptible sleep\n");
}

TEST(Stacks, NamesOfFunctionsHaveNoArguments) {
  const std::pair<const char*, const char*> names[] = {
      {"read", "read"},
      {"c10d::ProcessGroupGloo::allreduce(std::vector<at::Tensor, std::allocator<at::Tensor> >&)",
       "c10d::ProcessGroupGloo::allreduce"},
      {"void f<int, g<3> >(int)", "f"},
      {"(anonymous namespace)::load(char const*, int)", "{anonymous}::load"},
      {"muster::(anonymous namespace)::Group::wait() const", "muster::{anonymous}::Group::wait"},
      {"run(int)::{lambda(int)#1}::operator()(int) const", "run::{lambda#1}::operator()"},
      {"a::operator<<(b&, int)", "a::operator<<"},
      {"std::function<void ()>::operator()() const", "std::function::operator()"},
      {"f[abi:cxx11](int)", "f[abi:cxx11]"},
      {"my_operator(int)", "my_operator"},
      {"f(", "f"},
      {"a<", "a"},
      {"", ""},
  };
  for (const auto& [demangled, name] : names)
    EXPECT_EQ(short_function_name(demangled), name) << demangled;
}

}  // namespace
}  // namespace muster
