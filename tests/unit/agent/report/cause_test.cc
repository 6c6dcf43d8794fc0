#include "agent/report/cause.h"

#include <gtest/gtest.h>

#include "agent/report/remedies.h"
#include "tests/unit/agent/report/report_samples.h"

namespace muster {
namespace {

const char* const kPlainTraceback =
    "Traceback (most recent call last):\n  File \"a.py\", line 2\nValueError: boom\n";

Cause classify_status(ExitStatus status, const HostEvidence& evidence = {},
                      const std::string& tail = {}) {
  WorkerFailure failure = sample_failure(0, status);
  failure.stderr_tail = tail;
  return cause_of(failure, evidence);
}

TEST(Cause, IsTheCodeOfAPlainExit) {
  EXPECT_EQ(classify_status(ExitStatus::exited(3)),
            (Cause{FailureClass::user, "exited with 3", "", ""}));
}

TEST(Cause, NamesAnUncaughtPythonException) {
  EXPECT_EQ(classify_status(ExitStatus::exited(1), {}, kPlainTraceback),
            (Cause{FailureClass::user, "exited with 1: ValueError: boom", "ValueError: boom", ""}));
}

TEST(Cause, DoesNotBlameAnExceptionThatMayHaveBeenCaught) {
  EXPECT_EQ(classify_status(ExitStatus::exited(3), {}, kPlainTraceback).sentence,
            "exited with 3 (last error on its stderr: ValueError: boom)");
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGSEGV), {}, kPlainTraceback).sentence,
            "killed by SIGSEGV (last error on its stderr: ValueError: boom)");
}

TEST(Cause, PrefersTheErrorFileToStderr) {
  WorkerFailure failure = sample_failure(0, ExitStatus::exited(3));
  failure.stderr_tail = kPlainTraceback;
  failure.error_file_content =
      recorded_error("KeyError: 'x'", "tb", std::to_string(kSampleSecond - 1));
  EXPECT_EQ(cause_of(failure, {}),
            (Cause{FailureClass::user, "exited with 3: KeyError: 'x'", "KeyError: 'x'", ""}));
}

TEST(Cause, IsTheSameWithAndWithoutTorchsErrorFile) {
  const std::string message = "ModuleNotFoundError: No module named 'nosuchmodule'";
  const Cause expected{
      FailureClass::user, "exited with 1: " + message, message,
      "that package is not installed for the Python that ran; --python chooses another"};
  WorkerFailure failure = sample_failure(1, ExitStatus::exited(1));
  failure.stderr_tail =
      "[rank1]: Traceback (most recent call last):\n"
      "[rank1]:   File \"/w/train.py\", line 8, in <module>\n"
      "[rank1]:     main()\n"
      "[rank1]: " +
      message + "\n";
  EXPECT_EQ(cause_of(failure), expected);
  failure.error_file_content = recorded_error(
      message, R"(Traceback (most recent call last):\n  File a\n)" + message + R"(\n)",
      std::to_string(kSampleSecond));
  EXPECT_EQ(cause_of(failure), expected);
}

TEST(Cause, TakesAChainFromTheCallStackOfTheErrorFile) {
  WorkerFailure failure = sample_failure(0, ExitStatus::exited(1));
  const std::string stack =
      R"(Traceback (most recent call last):\n  File a\nKeyError: 'lr'\n\n)"
      R"(The above exception was the direct cause of the following exception:\n\n)"
      R"(Traceback (most recent call last):\n  File a\nRuntimeError: no lr\n)";
  failure.error_file_content =
      recorded_error("RuntimeError: no lr", stack, std::to_string(kSampleSecond));
  EXPECT_EQ(cause_of(failure).exception, "RuntimeError: no lr (caused by KeyError: 'lr')");
}

TEST(Cause, BelievesAHandlerThatRecordsAnotherErrorThanItsCallStack) {
  WorkerFailure failure = sample_failure(0, ExitStatus::exited(1));
  failure.error_file_content = recorded_error(
      "the reactor is cold", R"(Traceback (most recent call last):\n  File a\nKeyError: 'x'\n)",
      std::to_string(kSampleSecond));
  EXPECT_EQ(cause_of(failure).exception, "the reactor is cold");
}

TEST(Cause, HasARemedyForAModuleThatPythonDoesNotFind) {
  const Cause cause = classify_status(ExitStatus::exited(1), {},
                                      "/opt/venv/bin/python3: No module named nosuchmodule\n");
  EXPECT_EQ(cause.sentence, "exited with 1: No module named nosuchmodule");
  EXPECT_EQ(cause.remedy,
            "-m takes a module that the Python that ran can import: check its spelling and the "
            "current folder; --python chooses another Python");
}

TEST(Cause, UsesStderrWhenTheErrorFileSaysNothing) {
  WorkerFailure failure = sample_failure(0, ExitStatus::exited(1));
  failure.stderr_tail = kPlainTraceback;
  for (const char* content : {"", R"({"message": "", "timestamp": 1})"}) {
    failure.error_file_content = content;
    EXPECT_EQ(cause_of(failure, {}).exception, "ValueError: boom") << content;
  }
}

TEST(Cause, ShowsTheFirstLineOfAMalformedErrorFile) {
  WorkerFailure failure = sample_failure(0, ExitStatus::exited(1));
  failure.error_file_content = "{\"message\": \x1b[31mtorn\nsecond";
  EXPECT_EQ(cause_of(failure, {}).sentence, "exited with 1: {\"message\": torn");
}

TEST(Cause, NamesTheSignalBehindAShellsExitCode) {
  EXPECT_EQ(classify_status(ExitStatus::exited(139)).sentence,
            "exited with 139, probably because SIGSEGV killed its command");
  EXPECT_EQ(classify_status(ExitStatus::exited(200)).sentence, "exited with 200");
}

TEST(Cause, SaysWhereTheCoreOfACrashIs) {
  HostEvidence evidence;
  evidence.core_path = "/w/core.1000";
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGSEGV, true), evidence),
            (Cause{FailureClass::signal, "killed by SIGSEGV, core at /w/core.1000", "", ""}));
}

TEST(Cause, NamesTheHandlerThatTookTheCoreOfACrash) {
  HostEvidence evidence;
  evidence.core_handler = "coredumpctl info 1000";
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGFPE, true), evidence).sentence,
            "killed by SIGFPE, core taken by a handler: coredumpctl info 1000");
}

TEST(Cause, SaysWhyACrashLeftNoCore) {
  HostEvidence evidence;
  evidence.core_limit_bytes = 0;
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGSEGV), evidence).sentence,
            "killed by SIGSEGV (no core: ulimit -c is 0)");
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGSEGV, true)).sentence,
            "killed by SIGSEGV, core dumped");
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGSEGV)).sentence, "killed by SIGSEGV");
}

TEST(Cause, NamesAnUncaughtCppException) {
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGABRT), {},
                            "terminate called after throwing an instance of 'std::logic_error'\n"
                            "  what():  boom\n")
                .sentence,
            "killed by SIGABRT: std::logic_error: boom");
}

TEST(Cause, ShowsPeakAndLimitOfAnOutOfMemoryKill) {
  WorkerFailure failure = sample_failure(0, ExitStatus::signaled(SIGKILL));
  failure.max_rss_kib = 8 * 1024 * 1024;
  HostEvidence evidence;
  evidence.oom_kills = 1;
  evidence.memory_limit_bytes = int64_t{16} << 30;
  EXPECT_EQ(cause_of(failure, evidence),
            (Cause{FailureClass::oom,
                   "killed by the kernel's out-of-memory killer (its peak was 8 GiB, the limit of "
                   "the memory cgroup is 16 GiB)",
                   "", std::string(kMemoryRemedy)}));
}

TEST(Cause, IsProbablyMemoryIfOnlyTheMachineCountedKills) {
  HostEvidence evidence;
  evidence.machine_oom_kills = 2;
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGKILL), evidence),
            (Cause{FailureClass::oom,
                   "killed by SIGKILL, probably by the kernel's out-of-memory killer, which was "
                   "active on this machine at the time",
                   "", std::string(kMemoryRemedy)}));
}

TEST(Cause, IsProbablyMemoryIfMoreDiedThanTheKernelCounted) {
  HostEvidence evidence;
  evidence.oom_kills = 1;
  evidence.more_kills = true;
  const Cause cause = classify_status(ExitStatus::signaled(SIGKILL), evidence);
  EXPECT_EQ(cause.kind, FailureClass::oom);
  EXPECT_EQ(cause.sentence,
            "killed by SIGKILL, probably by the kernel's out-of-memory killer, which was active in "
            "this job at the time");
}

TEST(Cause, IsCertainlyMemoryIfTheKernelLogNamesTheVictim) {
  HostEvidence evidence;
  evidence.oom_victim = true;  // The cgroup counters are unreadable.
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGKILL), evidence).sentence,
            "killed by the kernel's out-of-memory killer");
  evidence.oom_kills = 1;
  evidence.more_kills = true;
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGKILL), evidence).sentence,
            "killed by the kernel's out-of-memory killer");
}

TEST(Cause, IsAKillFromOutsideIfTheKernelLogDoesNotNameIt) {
  HostEvidence evidence;
  evidence.oom_victim = false;
  evidence.machine_oom_kills = 1;
  EXPECT_EQ(
      classify_status(ExitStatus::signaled(SIGKILL), evidence),
      (Cause{FailureClass::signal, "killed by SIGKILL from outside (not by muster)", "", ""}));
  evidence.oom_kills = 1;  // The victim was a child of some worker.
  EXPECT_EQ(
      classify_status(ExitStatus::signaled(SIGKILL), evidence),
      (Cause{FailureClass::signal,
             "killed by SIGKILL from outside (not by muster, nor by the out-of-memory killer)", "",
             ""}));
}

TEST(Cause, SaysThatAnyOtherKillWasNotByMuster) {
  EXPECT_EQ(
      classify_status(ExitStatus::signaled(SIGKILL)),
      (Cause{FailureClass::signal, "killed by SIGKILL from outside (not by muster)", "", ""}));
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGTERM)).sentence,
            "killed by SIGTERM from outside (not by muster)");
}

TEST(Cause, NamesTheScopeOfAnExpiredTimer) {
  HostEvidence evidence;
  evidence.expired_timer = "forward";
  const Cause killed = classify_status(ExitStatus::signaled(SIGKILL), evidence);
  EXPECT_EQ(killed.kind, FailureClass::timer);
  EXPECT_EQ(killed.sentence, "killed by SIGKILL: its timer \"forward\" expired");
  EXPECT_EQ(
      classify_status(ExitStatus::signaled(SIGUSR1), evidence),
      (Cause{FailureClass::timer, "killed by SIGUSR1: its timer \"forward\" expired", "", ""}));
}

TEST(Cause, MentionsAChildKilledForMemoryInTheRemedy) {
  HostEvidence evidence;
  evidence.oom_kills = 1;
  const Cause exited = classify_status(ExitStatus::exited(1), evidence);
  EXPECT_EQ(exited.kind, FailureClass::user);
  EXPECT_EQ(exited.remedy,
            std::string("the kernel's out-of-memory killer killed a process of this job: ") +
                std::string(kMemoryRemedy));
  evidence.oom_kills = 2;
  const Cause shell = classify_status(ExitStatus::exited(137), evidence);
  EXPECT_EQ(shell.kind, FailureClass::oom);
  EXPECT_EQ(shell.remedy,
            std::string("the kernel's out-of-memory killer killed 2 processes of this job: ") +
                std::string(kMemoryRemedy));
}

Cause of_last_words(const std::string& tail, const HostEvidence& evidence,
                    ExitStatus status = ExitStatus::exited(1)) {
  return classify_status(status, evidence, "Traceback (most recent call last):\n" + tail + "\n");
}

TEST(Cause, IsMemoryIfTheErrorReportsAHelperThatTheKernelKilled) {
  HostEvidence evidence;
  evidence.oom_kills = 1;
  evidence.oom_victim = false;
  evidence.oom_victims = {{4711, "pt_data_worker"}};
  evidence.memory_limit_bytes = 80 << 20;
  const std::string killed =
      "; the kernel's out-of-memory killer had killed its process 4711 (pt_data_worker) (the limit "
      "of the memory cgroup is 80 MiB)";
  for (const char* const words : {
           "RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly",
           "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. ",
           "RuntimeError: loader process exited unexpectedly with -9",
           "concurrent.futures.process.BrokenProcessPool: A process in the process pool was "
           "terminated abruptly while the future was running or pending.",
           "subprocess.CalledProcessError: Command 'tok' died with <Signals.SIGKILL: 9>.",
           "subprocess.CalledProcessError: Command 'tok.sh' returned non-zero exit status 137.",
           "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal "
           "SIGKILL",
           "RuntimeError: One of the subprocesses has abruptly died during map operation.To debug "
           "the error, disable multiprocessing.",
       }) {
    const Cause cause = of_last_words(words, evidence);
    EXPECT_EQ(cause.kind, FailureClass::oom) << words;
    EXPECT_TRUE(cause.sentence.ends_with(killed)) << cause.sentence;
    EXPECT_EQ(cause.remedy, kMemoryRemedy);
  }
}

TEST(Cause, NamesTheVictimThatTheErrorNames) {
  HostEvidence evidence;
  evidence.oom_victim = false;
  evidence.oom_victims = {{4711, "chrome"}, {4712, "python3"}};
  const std::string words =
      "RuntimeError: DataLoader worker (pid 4712) is killed by signal: Killed.";
  EXPECT_TRUE(of_last_words(words, evidence).sentence.ends_with("its process 4712 (python3)"));
  const std::string no_pid = "RuntimeError: loader process exited unexpectedly with -9";
  evidence.oom_kills = 1;
  evidence.oom_victims[1].is_own = true;
  EXPECT_TRUE(of_last_words(no_pid, evidence).sentence.ends_with("its process 4712 (python3)"));
  evidence.oom_victims[0].is_own = true;
  EXPECT_TRUE(of_last_words(no_pid, evidence).sentence.ends_with("one of its processes"));
  evidence.oom_kills = 2;  // The log is unreadable, as in a container.
  evidence.oom_victim.reset();
  evidence.oom_victims.clear();
  const Cause cause = of_last_words(words, evidence);
  EXPECT_EQ(cause.kind, FailureClass::oom);
  EXPECT_TRUE(cause.sentence.ends_with("had killed one of its processes")) << cause.sentence;
}

TEST(Cause, IsNotMemoryIfTheKernelKilledAForeignProcess) {
  const std::string named =
      "RuntimeError: DataLoader worker (pid 4712) is killed by signal: Killed.";
  HostEvidence evidence;
  evidence.oom_victim = false;
  evidence.oom_victims = {{815, "chrome"}};
  evidence.machine_oom_kills = 1;
  for (const std::string& words : {named, std::string("RuntimeError: loader ended with -9"),
                                   std::string("ValueError: wrong shape (4, -96)")}) {
    EXPECT_EQ(of_last_words(words, evidence).kind, FailureClass::user) << words;
  }
  evidence.oom_kills = 1;  // Other jobs share the cgroup.
  EXPECT_EQ(of_last_words(named, evidence).kind, FailureClass::user);
  EXPECT_EQ(of_last_words("ValueError: wrong shape (4, -96)", evidence).kind, FailureClass::user);
}

TEST(Cause, IsTheProcessLimitThatWasReached) {
  HostEvidence evidence;
  evidence.process_limit = "pids.max of /sys/fs/cgroup/pids/job is 24";
  const std::string forking =
      "  File \"/usr/lib/python3.11/multiprocessing/popen_fork.py\", line 66\n"
      "    self.pid = os.fork()\n"
      "BlockingIOError: [Errno 11] Resource temporarily unavailable";
  for (const auto& [words, status] : {
           std::pair<std::string, ExitStatus>{"RuntimeError: can't start new thread",
                                              ExitStatus::exited(1)},
           {forking, ExitStatus::exited(1)},
           {"  File \"<string>\", line 4, in <module>\n"
            "BlockingIOError: [Errno 11] Resource temporarily unavailable",
            ExitStatus::exited(1)},
           {"OpenBLAS blas_thread_init: pthread_create failed for thread 3 of 8: Resource "
            "temporarily unavailable\nTraceback (most recent call last):\n"
            "  File \"t.py\", line 1, in <module>\nKeyboardInterrupt",
            ExitStatus::signaled(SIGINT)},
       }) {
    const Cause cause = of_last_words(words, evidence, status);
    EXPECT_EQ(cause.kind, FailureClass::limit) << words;
    EXPECT_EQ(cause.remedy, kProcessLimitRemedy);
    EXPECT_TRUE(cause.sentence.ends_with("; " + evidence.process_limit)) << cause.sentence;
  }
  EXPECT_EQ(classify_status(ExitStatus::exited(1), evidence,
                            "\nlibgomp: Thread creation failed: Resource temporarily "
                            "unavailable\n"),
            (Cause{FailureClass::limit,
                   "exited with 1: libgomp: Thread creation failed: Resource temporarily "
                   "unavailable; pids.max of /sys/fs/cgroup/pids/job is 24",
                   "libgomp: Thread creation failed: Resource temporarily unavailable",
                   std::string(kProcessLimitRemedy)}));
  EXPECT_EQ(classify_status(ExitStatus::exited(254), evidence,
                            "bash: fork: retry: Resource temporarily unavailable\n"
                            "bash: fork: Resource temporarily unavailable\n")
                .kind,
            FailureClass::limit);
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGABRT), evidence,
                            "terminate called after throwing an instance of 'std::system_error'\n"
                            "  what():  Resource temporarily unavailable\n")
                .kind,
            FailureClass::limit);
}

TEST(Cause, IsNotTheProcessLimitIfAReadWouldBlock) {
  HostEvidence evidence;
  evidence.process_limit =
      "ulimit -u (RLIMIT_NPROC) is 4096 for all processes and threads of uid 7";
  EXPECT_EQ(of_last_words("  File \"t.py\", line 3, in <module>\n    sock.recv(1)\n"
                          "BlockingIOError: [Errno 11] Resource temporarily unavailable",
                          evidence)
                .kind,
            FailureClass::user);
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGABRT), evidence,
                            "terminate called after throwing an instance of 'std::system_error'\n"
                            "  what():  read: Resource temporarily unavailable\n")
                .kind,
            FailureClass::signal);
}

// `ulimit -t` sets both limits; the hard one kills.
TEST(Cause, IsTheCpuTimeLimitIfTheKillCameAtIt) {
  WorkerFailure failure = sample_failure(0, ExitStatus::signaled(SIGKILL));
  failure.cpu_s = 59.7;
  HostEvidence evidence;
  evidence.limits.cpu_s = 60;
  EXPECT_EQ(
      cause_of(failure, evidence),
      (Cause{FailureClass::limit, "killed by SIGKILL at its CPU time limit (ulimit -t is 60 s)", "",
             std::string(kCpuTimeRemedy)}));
  failure.cpu_s = 20;
  EXPECT_EQ(cause_of(failure, evidence).kind, FailureClass::signal);
}

TEST(Cause, BlamesASegmentationFaultOnAStackOverflow) {
  HostEvidence evidence;
  evidence.stack_overflow = true;
  evidence.limits.stack_bytes = 8 << 20;
  EXPECT_EQ(
      classify_status(ExitStatus::signaled(SIGSEGV), evidence),
      (Cause{FailureClass::signal, "killed by SIGSEGV: its stack overflowed (ulimit -s is 8 MiB)",
             "", std::string(kStackRemedy)}));
}

TEST(Cause, DoesNotBlameAnExceptionOnAKilledChild) {
  HostEvidence evidence;
  evidence.oom_kills = 1;
  const Cause cause =
      classify_status(ExitStatus::exited(1), evidence,
                      "Traceback (most recent call last):\n  File \"a.py\", line 2, in <module>\n"
                      "BrokenPipeError: the loader has gone\n");
  EXPECT_EQ(cause.kind, FailureClass::user);
  EXPECT_TRUE(
      cause.remedy.starts_with("the kernel's out-of-memory killer killed a process of this job; if "
                               "that is why the rank failed: "))
      << cause.remedy;
}

constexpr const char* kIllegalAccess =
    "Traceback (most recent call last):\n  File \"a.py\", line 2, in <module>\n"
    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n";

// The default pid is that of rank 0 in these tests.
HostEvidence logged(int number, const std::string& text, pid_t pid = 1000) {
  HostEvidence evidence;
  evidence.xid = Xid{number, pid, "0000:c1:00", text};
  return evidence;
}

TEST(Cause, NamesTheXidOfTheWorker) {
  const Cause cause = classify_status(
      ExitStatus::exited(1), logged(31, "MMU Fault: ENGINE GRAPHICS GPC1"), kIllegalAccess);
  EXPECT_EQ(cause.sentence,
            "exited with 1: torch.AcceleratorError: CUDA error: an illegal memory access was "
            "encountered; the GPU driver logged Xid 31 (0000:c1:00): MMU Fault: ENGINE GRAPHICS "
            "GPC1");
  EXPECT_EQ(cause.remedy, kGpuKernelRemedy);
  EXPECT_EQ(
      classify_status(ExitStatus::signaled(SIGABRT), logged(43, "")),
      (Cause{FailureClass::gpu, "killed by SIGABRT; the GPU driver logged Xid 43 (0000:c1:00)", "",
             std::string(kGpuKernelRemedy)}));
}

TEST(Cause, IsAFailingGpuRatherThanTheProgram) {
  const Cause own =
      classify_status(ExitStatus::exited(1), logged(94, "Contained: SM (0x1)"), kPlainTraceback);
  EXPECT_EQ(own.kind, FailureClass::gpu);
  EXPECT_EQ(own.remedy, kGpuHardwareRemedy);
  const HostEvidence lost = logged(79, "GPU has fallen off the bus", 0);
  const Cause cause = classify_status(ExitStatus::exited(1), lost, kIllegalAccess);
  EXPECT_TRUE(
      cause.sentence.ends_with("; the GPU driver logged Xid 79 (0000:c1:00) meanwhile: GPU "
                               "has fallen off the bus"))
      << cause.sentence;
  EXPECT_EQ(cause.remedy, kGpuHardwareRemedy);
  const char* const of_nccl =
      "Traceback (most recent call last):\n  File \"a.py\", line 2, in <module>\n"
      "torch.distributed.DistBackendError: NCCL error in: a.cpp:1, unhandled cuda error\n";
  EXPECT_EQ(classify_status(ExitStatus::exited(1), lost, of_nccl).remedy, kGpuHardwareRemedy);
}

// Such an Xid may belong to another job's GPU.
TEST(Cause, MentionsAnXidWithoutAPidOnlyForAGpuError) {
  const HostEvidence lost = logged(79, "GPU has fallen off the bus", 0);
  for (const ExitStatus& status : {ExitStatus::exited(1), ExitStatus::signaled(SIGSEGV)}) {
    for (const char* tail : {"", kPlainTraceback}) {
      const Cause cause = classify_status(status, lost, tail);
      EXPECT_EQ(cause.kind,
                status == ExitStatus::exited(1) ? FailureClass::user : FailureClass::signal);
      EXPECT_EQ(cause.sentence.find("Xid"), std::string::npos) << cause.sentence;
    }
  }
}

TEST(Cause, HasNoXidForAStoppedWorker) {
  const WorkerFailure stopped = sample_stopped(0);
  EXPECT_EQ(cause_of(stopped, logged(43, "")), cause_of(stopped));
}

TEST(Cause, BlamesABusErrorOnAFullShm) {
  HostEvidence evidence;
  evidence.shm_total_bytes = int64_t{64} << 20;
  evidence.shm_free_bytes = 0;
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGBUS), evidence),
            (Cause{FailureClass::shm,
                   "killed by SIGBUS: bus error and /dev/shm is full (64 MiB of 64 MiB)", "",
                   std::string(kShmRemedy)}));
}

TEST(Cause, BlamesABusErrorProbablyOnASmallShm) {
  HostEvidence evidence;
  evidence.shm_total_bytes = int64_t{64} << 20;
  evidence.shm_free_bytes = evidence.shm_total_bytes;
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGBUS), evidence),
            (Cause{FailureClass::shm,
                   "killed by SIGBUS: bus error, probably because /dev/shm holds only 64 MiB", "",
                   std::string(kShmRemedy)}));
}

TEST(Cause, DoesNotBlameABusErrorOnAShmWithRoom) {
  HostEvidence evidence;
  evidence.shm_total_bytes = int64_t{64} << 30;
  evidence.shm_free_bytes = int64_t{32} << 30;
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGBUS), evidence),
            (Cause{FailureClass::signal, "killed by SIGBUS (bus error)", "", ""}));
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGBUS)).sentence, "killed by SIGBUS (bus error)");
}

TEST(Cause, ExplainsSignalsWithObscureNames) {
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGXCPU)).sentence,
            "killed by SIGXCPU (the CPU time limit, ulimit -t)");
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGPIPE)).sentence,
            "killed by SIGPIPE (no process was left to read the pipe or socket that it wrote to)");
  HostEvidence machine;
  machine.lost_console = true;
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGPIPE), machine).remedy, kConsoleRemedy);
  EXPECT_EQ(classify_status(ExitStatus::exited(141), machine).remedy, kConsoleRemedy);
  EXPECT_EQ(classify_status(ExitStatus::exited(1), machine).remedy, "");
}

TEST(Cause, IsTheDeclarationOfADeclaredFailure) {
  WorkerFailure failure = sample_failure(0, ExitStatus::signaled(SIGKILL));
  failure.declared = "stuck in uninterruptible sleep for 60 s";
  EXPECT_EQ(cause_of(failure, {}),
            (Cause{FailureClass::stuck, "stuck in uninterruptible sleep for 60 s", "", ""}));
}

TEST(Cause, IsMusterForAStoppedWorker) {
  EXPECT_EQ(cause_of(sample_stopped(2), {}),
            (Cause{FailureClass::signal, "stopped by muster (killed by SIGTERM)", "", ""}));
}

TEST(Cause, ClassifiesKnownMessages) {
  const Cause cause =
      classify_status(ExitStatus::exited(1), {},
                      "Traceback (most recent call last):\n  File \"a\"\n"
                      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n");
  EXPECT_EQ(cause.kind, FailureClass::gpu);
  EXPECT_EQ(cause.remedy,
            "the GPU's memory is full: use a smaller batch or model part; nvidia-smi lists the "
            "processes that use it");
}

TEST(Cause, LooksForKnownMessagesInTheLastLinesIfThereIsNoException) {
  const std::string message = "bind(): Address already in use\n";
  EXPECT_EQ(classify_status(ExitStatus::exited(2), {}, message).kind, FailureClass::network);
  std::string old = message;
  for (int i = 0; i < 10; ++i)
    old += "later line\n";
  EXPECT_EQ(classify_status(ExitStatus::exited(2), {}, old).kind, FailureClass::user);
}

TEST(Cause, IgnoresMessagesBeforeAKillFromOutside) {
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGKILL), {}, "NCCL error\n").kind,
            FailureClass::signal);
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGABRT), {}, "NCCL error\n").kind,
            FailureClass::network);
}

TEST(Cause, PointsAtAFullLogDiskAfterASilentDeath) {
  HostEvidence evidence;
  evidence.full_log_disk = "/logs";
  const Cause cause = classify_status(ExitStatus::exited(1), evidence);
  EXPECT_EQ(cause.kind, FailureClass::disk);
  EXPECT_EQ(cause.sentence, "exited with 1");
  EXPECT_EQ(cause.remedy,
            "the disk of the log folder /logs is full: its last output is lost, and that may be "
            "why it failed");
  // A reason that the program printed takes precedence.
  const std::string reason =
      "Traceback (most recent call last):\n  File \"x.py\", line 1, in f\nValueError: boom\n";
  EXPECT_EQ(classify_status(ExitStatus::exited(1), evidence, reason).remedy, "");
  EXPECT_EQ(classify_status(ExitStatus::signaled(SIGKILL), evidence).remedy, "");
}

TEST(Cause, NamesTheLogFolderIfItsDiskIsFull) {
  HostEvidence evidence;
  evidence.full_log_disk = "/logs";
  const std::string tail = "OSError: [Errno 28] No space left on device\n";
  EXPECT_EQ(classify_status(ExitStatus::exited(1), evidence, tail).remedy,
            "the disk of the log folder /logs is full");
  EXPECT_EQ(classify_status(ExitStatus::exited(1), {}, tail).remedy,
            "a disk is full: `df -h` and `df -i` show which");
}

TEST(FailureClassName, IsTheSpellingOfTheSchema) {
  EXPECT_STREQ(failure_class_name(FailureClass::user), "user");
  EXPECT_STREQ(failure_class_name(FailureClass::oom), "oom");
  EXPECT_STREQ(failure_class_name(FailureClass::gpu), "gpu");
  EXPECT_STREQ(failure_class_name(FailureClass::network), "network");
  EXPECT_STREQ(failure_class_name(FailureClass::signal), "signal");
  EXPECT_STREQ(failure_class_name(FailureClass::shm), "shm");
  EXPECT_STREQ(failure_class_name(FailureClass::disk), "disk");
  EXPECT_STREQ(failure_class_name(FailureClass::stuck), "stuck");
  EXPECT_STREQ(failure_class_name(FailureClass::limit), "limit");
}

TEST(ExplainedByStop, CoversTheSignalTheKillAndTheShellsCodes) {
  EXPECT_TRUE(explained_by_stop(ExitStatus::signaled(SIGTERM), SIGTERM, false));
  EXPECT_TRUE(explained_by_stop(ExitStatus::exited(143), SIGTERM, false));
  EXPECT_TRUE(explained_by_stop(ExitStatus::signaled(SIGKILL), SIGTERM, true));
  EXPECT_TRUE(explained_by_stop(ExitStatus::exited(137), SIGTERM, true));
  EXPECT_FALSE(explained_by_stop(ExitStatus::signaled(SIGKILL), SIGTERM, false));
  EXPECT_FALSE(explained_by_stop(ExitStatus::signaled(SIGTERM), SIGINT, true));
  EXPECT_FALSE(explained_by_stop(ExitStatus::signaled(SIGSEGV), SIGTERM, true));
  EXPECT_FALSE(explained_by_stop(ExitStatus::exited(1), SIGTERM, true));
}

}  // namespace
}  // namespace muster
