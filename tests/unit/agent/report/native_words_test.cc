#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "agent/report/finding.h"
#include "tests/unit/agent/report/finding_text.h"
#include "tests/unit/agent/report/report_generators.h"

namespace muster {
namespace {

std::string native(const std::string& text, size_t at = 0) {
  return text_of(find_native(MessageLines(text), at));
}

struct NativeCase {
  std::string text;
  std::string found;
};

void expect_found(const std::vector<NativeCase>& cases) {
  for (const NativeCase& one : cases) {
    EXPECT_EQ(native(one.text), one.found) << one.text;
    EXPECT_EQ(native("[default0]:" + one.text), one.found) << one.text;
  }
}

TEST(NativeWords, GiveTypeAndTextOfALibstdcxxException) {
  const std::string thrown = "terminate called after throwing an instance of 'std::system_error'\n";
  expect_found({
      {thrown, "0-1 std::system_error | uncaught"},
      {thrown + "  what():  boom\n\nepoch 2\n", "0-2 std::system_error: boom | uncaught"},
      {thrown + "what():  boom\n", "0-1 std::system_error | uncaught"},
      {thrown + "  what():  read: Broken pipe\nmore\nframe #0: f\nframe #1: g\nepoch 2\n",
       "0-5 std::system_error: read: Broken pipe | uncaught | blames "},
      {thrown + "  what():  a\nException raised from f at a.cpp:1 (most recent call first):\n"
                "frame #0: f\n<omitting python frames>\n\n",
       "0-5 std::system_error: a | uncaught"},
      {"terminate called without an active exception\n",
       "0-1 terminate called without an active exception | uncaught | minor"},
      {"terminate called recursively\n", "nothing"},
  });
}

TEST(NativeWords, MayBlameAPeerInALaterLineOfLibstdcxx) {
  const std::string thrown = "terminate called after throwing an instance of 'c10::Error'\n";
  EXPECT_EQ(native(thrown + "  what():  x\nNCCL communicator was aborted on rank 1.\nmore\n\n"),
            "0-4 c10::Error: x | uncaught | blames ");
  EXPECT_EQ(native(thrown + "  what():  x\nmore\n\nNCCL communicator was aborted on rank 1.\n"),
            "0-3 c10::Error: x | uncaught");
  EXPECT_EQ(native(thrown + "  what():  x\nINFO NCCL communicator was aborted on rank 1.\n"),
            "0-2 c10::Error: x | uncaught");
}

TEST(NativeWords, GiveTypeAndTextOfALibcxxException) {
  const std::string begin = "libc++abi: terminating ";
  expect_found({
      {begin + "due to uncaught exception of type std::out_of_range: vector\n",
       "0-1 std::out_of_range: vector | uncaught"},
      {begin + "with uncaught exception of type int\n", "0-1 int | uncaught"},
      {begin + "due to uncaught exception of type std::system_error: read: Broken pipe\n",
       "0-1 std::system_error: read: Broken pipe | uncaught | blames "},
      {begin + "\n", "0-1 libc++abi: terminating  | uncaught | minor"},
      {"libc++abi: Pure virtual function called!\n", "nothing"},
  });
}

TEST(NativeWords, AreUncaughtIfRustPanicsInItsMainThread) {
  expect_found({
      {"thread 'main' panicked at a.rs:2:5:\nboom\nnote: run with x\n",
       "0-2 thread 'main' panicked at a.rs:2:5: boom | uncaught"},
      {"thread 'main' (4711) panicked at a.rs:2:5:\nboom\n",
       "0-2 thread 'main' panicked at a.rs:2:5: boom | uncaught"},
      {"thread 'main' panicked at 'boom', a.rs:2:5\nnote\n",
       "0-1 thread 'main' panicked at 'boom', a.rs:2:5 | uncaught"},
      {"thread 'worker (7) x' (12) panicked at a.rs:2:5:\nboom\n",
       "0-2 thread 'worker (7) x' panicked at a.rs:2:5: boom"},
      {"thread 'main' panicked at a.rs:2:5:\nassertion failed\n  left: 1\n right: 2\nnote\n",
       "0-4 thread 'main' panicked at a.rs:2:5: assertion failed, left: 1, right: 2 | uncaught"},
      {"thread 'main' panicked at a.rs:2:5:", "0-1 thread 'main' panicked at a.rs:2:5: | uncaught"},
      {"thread 'main' has overflowed its stack\n", "nothing"},
      {"thread main panicked at a.rs:2:5:\n", "nothing"},
  });
}

TEST(NativeWords, AreUncaughtIfAStackFollowsAGoPanic) {
  expect_found({
      {"panic: boom\n\ngoroutine 1 [running]:\nmain.f()\n", "0-1 panic: boom | uncaught"},
      {"panic: boom\n[signal SIGSEGV: segmentation violation]\n\ngoroutine 1 [running]:\n",
       "0-1 panic: boom | uncaught"},
      {"fatal error: all goroutines are asleep\nruntime stack:\n",
       "0-1 fatal error: all goroutines are asleep | uncaught"},
      {"panic: a [recovered]\n\tpanic: b\n\ngoroutine 1 [running]:\n", "0-2 panic: b | uncaught"},
      {"panic: boom\n", "0-1 panic: boom"},
      {"panic: boom\n\n\n\ngoroutine 1 [running]:\n", "0-1 panic: boom"},
      {"a panic: boom\n", "nothing"},
  });
}

TEST(NativeWords, NameTheInnermostCauseOfAJavaException) {
  expect_found({
      {"Exception in thread \"main\" a.B: boom\n\tat a.b(C.java:1)\n\t... 2 more\nepoch 2\n",
       "0-3 a.B: boom | uncaught"},
      {"Exception in thread \"main\" a.B: x\n\tat a\nCaused by: C: y\n\tat c\nCaused by: D: z\n",
       "0-5 a.B: x (caused by D: z) | uncaught"},
      {"Exception in thread \"pool-1\" a.B\n", "0-1 a.B"},
      {"Exception in thread \"main", "nothing"},
  });
}

TEST(NativeWords, IncludeTheDumpOfThePythonInterpreter) {
  const std::string dump =
      "\nCurrent thread 0x1 (most recent call first):\n  File \"a.py\", line 1 in f\n\n"
      "Thread 0x2:\n  <no Python frame>\n\nExtension modules: numpy (total: 1)\nepoch 2\n";
  expect_found({
      {"Fatal Python error: Segmentation fault\n" + dump,
       "0-9 Fatal Python error: Segmentation fault | uncaught"},
      {"Fatal Python error: Aborted\n" + dump, "0-9 Fatal Python error: Aborted | uncaught | echo"},
      {"Fatal Python error: Aborted by x\n", "0-1 Fatal Python error: Aborted by x | uncaught"},
      {"/usr/bin/python3: No module named x\n", "0-1 No module named x | uncaught"},
      {"pypy: can't open file '/x.py': [Errno 2]\n",
       "0-1 can't open file '/x.py': [Errno 2] | uncaught"},
      {"/opt/python3.12/bin/tool: No module named x\n", "nothing"},
      {"python3: no module\n", "nothing"},
      {"No module named x\n", "nothing"},
      {"SyntaxError: invalid syntax\n", "0-1 SyntaxError: invalid syntax"},
      {"IndentationError: x\n", "0-1 IndentationError: x"},
      {"SyntaxErrors: x\n", "nothing"},
  });
}

TEST(NativeWords, RecognizeFatalSingleLines) {
  for (const char* line :
       {"double free or corruption (out)", "free(): invalid pointer",
        "malloc(): corrupted top size", "*** stack smashing detected ***: terminated",
        "corrupted size vs. prev_size in fastbins", "Fatal glibc error: x",
        "a.out: a.c:12: main: Assertion `x > 0' failed.",
        "/usr/include/c++/14/bits/stl_vector.h:1149: T& f(): Assertion '__n < size()' failed.",
        "/usr/include/c++/v1/vector:1414: assertion n < size() failed: index out of bounds"})
    EXPECT_EQ(native(std::string(line) + "\nmore\n"), "0-1 " + std::string(line) + " | uncaught");
  for (const char* line : {"my free(): x", "a.c:12: main: Assertion `x > 0' failed", "free() x",
                           "test: assertion x failed: y", "a.h:1: assertion x held"})
    EXPECT_EQ(native(std::string(line) + "\n"), "nothing") << line;
}

TEST(NativeWords, SayWhetherASanitizerGoesOn) {
  expect_found({
      {"==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x1\n",
       "0-1 ==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x1 | uncaught"},
      {"==7==WARNING: MemorySanitizer: x\n", "0-1 ==7==WARNING: MemorySanitizer: x"},
      {"a.cc:1:2: runtime error: signed integer overflow\n",
       "0-1 a.cc:1:2: runtime error: signed integer overflow"},
      {"== Sanitizer", "nothing"},
  });
  EXPECT_EQ(native("  a.cc:1:2: runtime error: x\n"), "nothing");
}

TEST(NativeWords, IncludeALogEntryIfItIsFatalOrBlamesAPeer) {
  const std::string header = "[E1122 10:00:00.123456789 a.cpp:632] ";
  const std::string blaming = "Watchdog caught collective operation timeout: x";
  expect_found({
      {header + blaming + "\n", "0-1 " + blaming + " | blames "},
      {"[E a.cpp:458] " + blaming + "\n", "0-1 " + blaming + " | blames "},
      {"E1122 15:13:21.957789   17004 a.cc:289] " + blaming + "\nmore\n\n",
       "0-2 " + blaming + " more | blames "},
      {"F1122 15:13:21.957789   17004 a.cc:289] check failed\nframe #0: f\n",
       "0-2 check failed | uncaught"},
      {header + "x\nNCCL communicator was aborted on rank 1.\n",
       "0-2 x NCCL communicator was aborted on rank 1. | blames "},
      {header + "boom\n", "nothing"},
      {"[I1122 10:00:00.1 a.cpp:632] " + blaming + "\n", "nothing"},
      {"E a.cpp:458] " + blaming + "\n", "nothing"},
      {"[E1122 10:00:00.1 a.cpp] " + blaming + "\n", "nothing"},
      {"[E1122 10:00:00.1 a.cpp:] " + blaming + "\n", "nothing"},
      {"[E1122 10:00:00.1 a.cpp:632]" + blaming + "\n", "nothing"},
  });
}

TEST(NativeWords, DropThePreambleOfJax) {
  EXPECT_EQ(native("F1122 15:13:21.957789   17004 client.h:80] Terminating process because the JAX "
                   "distributed service detected fatal errors. absl::Status: UNAVAILABLE: x\n"),
            "0-1 JAX distributed service: UNAVAILABLE: x | uncaught | blames ");
}

TEST(NativeWords, IncludeOtherLibrariesIfTheyBlameAPeer) {
  expect_found({
      {"n:1:2 [0] a.cc:9 NCCL WARN  Connection closed by remote peer n<1> \n",
       "0-1 NCCL WARN Connection closed by remote peer n<1> | blames "},
      {"n:1:2 [0] a.cc:9 NCCL WARN Cuda failure 'out of memory'\n", "nothing"},
      {"all_reduce 7 of group world: rank 2 (node7, pid 4711) died; x\n", "nothing"},
      {"An MPI communication peer process has unexpectedly disconnected.  This\nmore\n",
       "0-1 An MPI communication peer process has unexpectedly disconnected | blames "},
  });
}

RC_GTEST_PROP(NativeWords, StayWithinTheTextWhateverItIs, ()) {
  const std::string begin = *rc::gen::element<std::string>(
      "", "panic: x\n\tpanic: y\n", "thread 'main' panicked at a:\n", "Fatal Python error: x\n",
      "Exception in thread \"main\" X\n\tat f\nCaused by: ", "F1 a.cc:1] x\n", "frame #0:\n",
      "terminate called after throwing an instance of 'X'\n  what():  y\n");
  const MessageLines lines(begin + *any_output());
  for (size_t at = 0; at < lines.size(); ++at) {
    const std::optional<Finding> finding = find_native(lines, at);
    if (!finding) continue;
    RC_ASSERT(finding->first == at);
    RC_ASSERT(finding->end > at && finding->end <= lines.size());
    RC_ASSERT(finding->text.find('\n') == std::string::npos);
    RC_ASSERT(!finding->tells_of_child && finding->standing != Standing::by_excepthook);
  }
}

}  // namespace
}  // namespace muster
