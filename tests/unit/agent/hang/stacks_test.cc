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
