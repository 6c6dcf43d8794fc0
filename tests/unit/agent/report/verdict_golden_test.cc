// Compares whole screens, from the first rule to the last, for the failures that people meet most.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "agent/report/cause.h"
#include "agent/report/verdict.h"
#include "tests/unit/agent/report/report_samples.h"

namespace muster {
namespace {

std::string screen(std::vector<WorkerFailure> failures, const HostEvidence& evidence = {}) {
  JobReport report = sample_job(JobEnd::failed);
  report.world_size = 4;
  judge_failures(report, failures, evidence);
  RenderOptions options;
  options.width = 60;
  return render_end(report, options);
}

WorkerFailure logged_failure(int rank, ExitStatus status, const std::string& tail) {
  WorkerFailure failure = sample_failure(rank, status);
  failure.stderr_tail = tail;
  failure.stderr_log_path = "/logs/stderr.log";
  return failure;
}

TEST(VerdictScreen, ShowsAFullSharedMemory) {
  HostEvidence evidence;
  evidence.shm_total_bytes = int64_t{64} << 20;
  evidence.shm_free_bytes = 0;
  EXPECT_EQ(screen({logged_failure(2, ExitStatus::signaled(SIGBUS), "epoch 1\n")}, evidence),
            R"(============================================================
train.py FAILED: rank 2 of 4 killed by SIGBUS: bus error and /dev/shm is full (64 MiB of 64 MiB)
on node-7, pid 1002, 2 min 14 s after its start
What to do: give /dev/shm more room: docker run --shm-size=8g (or --ipc=host); on Kubernetes mount an emptyDir with medium: Memory there
The last line of its stderr:
  | epoch 1
Root Cause (first observed failure): failed (exitcode: -7) local_rank: 2 (pid: 1002) of binary: /usr/bin/python3
  rank      : 2 (local_rank: 2), exitcode  : -7 (pid: 1002)  (SIGBUS), time: 2026-11-20_22:56:48
Log: /logs/stderr.log
============================================================
)");
}

TEST(VerdictScreen, ShowsAFullGpu) {
  EXPECT_EQ(
      screen({logged_failure(1, ExitStatus::exited(1),
                             "Traceback (most recent call last):\n"
                             "  File \"train.py\", line 31, in <module>\n"
                             "    loss.backward()\n"
                             "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
                             "[rank1]:[W] destroy_process_group() was not called\n")}),
      R"(============================================================
train.py FAILED: rank 1 of 4 exited with 1: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB
on node-7, pid 1001, 2 min 14 s after its start
What to do: the GPU's memory is full: use a smaller batch or model part; nvidia-smi lists the processes that use it
The last 5 lines of its stderr:
  | Traceback (most recent call last):
  |   File "train.py", line 31, in <module>
  |     loss.backward()
  | torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB
  | [rank1]:[W] destroy_process_group() was not called
Root Cause (first observed failure): failed (exitcode: 1) local_rank: 1 (pid: 1001) of binary: /usr/bin/python3
  rank      : 1 (local_rank: 1), exitcode  : 1 (pid: 1001), time: 2026-11-20_22:56:48
Log: /logs/stderr.log
============================================================
)");
}

TEST(VerdictScreen, ShowsALostGpu) {
  HostEvidence evidence;
  evidence.xid = Xid{79, 0, "0000:c1:00", "GPU has fallen off the bus"};
  EXPECT_EQ(screen({logged_failure(1, ExitStatus::exited(1),
                                   "Traceback (most recent call last):\n"
                                   "  File \"train.py\", line 31, in <module>\n"
                                   "torch.AcceleratorError: CUDA error: unknown error\n")},
                   evidence),
            R"(============================================================
train.py FAILED: rank 1 of 4 exited with 1: torch.AcceleratorError: CUDA error: unknown error; the GPU driver logged Xid 79 (0000:c1:00) meanwhile: GPU has fallen off the bus
on node-7, pid 1001, 2 min 14 s after its start
What to do: the GPU or its link failed: take the node out of the job, and see `nvidia-smi -q` and the kernel log
The last 3 lines of its stderr:
  | Traceback (most recent call last):
  |   File "train.py", line 31, in <module>
  | torch.AcceleratorError: CUDA error: unknown error
Root Cause (first observed failure): failed (exitcode: 1) local_rank: 1 (pid: 1001) of binary: /usr/bin/python3
  rank      : 1 (local_rank: 1), exitcode  : 1 (pid: 1001), time: 2026-11-20_22:56:48
Log: /logs/stderr.log
============================================================
)");
}

TEST(VerdictScreen, ShowsACppProgramThatThrew) {
  HostEvidence evidence;
  evidence.core_path = "/work/core.1000";
  EXPECT_EQ(
      screen({logged_failure(0, ExitStatus::signaled(SIGABRT, true),
                             "terminate called after throwing an instance of 'std::range_error'\n"
                             "  what():  mesh has no cells\n"),
              sample_failure(1, ExitStatus::exited(1)), sample_stopped(2), sample_stopped(3)},
             evidence),
      R"(============================================================
train.py FAILED: rank 0 of 4 killed by SIGABRT, core at /work/core.1000: std::range_error: mesh has no cells
on node-7, pid 1000, 2 min 14 s after its start
The last 2 lines of its stderr:
  | terminate called after throwing an instance of 'std::range_error'
  |   what():  mesh has no cells
Root Cause (first observed failure): failed (exitcode: -6) local_rank: 0 (pid: 1000) of binary: /usr/bin/python3
  rank      : 0 (local_rank: 0), exitcode  : -6 (pid: 1000)  (SIGABRT), time: 2026-11-20_22:56:48
Log: /logs/stderr.log
1 other failed afterwards: rank 1 exited with 1
2 others were stopped by muster: ranks 2-3 killed by SIGTERM
============================================================
)");
}

TEST(VerdictScreen, ShowsTheCulpritIfAPeerEndedFirst) {
  // Rank 0 aborts because rank 3 is gone, and its exit is observed first; the error file of rank 3
  // is two seconds older.
  WorkerFailure guilty = logged_failure(3, ExitStatus::exited(1), "");
  guilty.time = sample_time(1);
  guilty.error_file_path = "/logs/error.json";
  guilty.error_file_content =
      recorded_error("ValueError: bad sample 77",
                     R"(Traceback (most recent call last):\n  File \"train.py\", line 9, in main\n)"
                     R"(ValueError: bad sample 77\n)",
                     std::to_string(kSampleSecond - 2));
  EXPECT_EQ(screen({logged_failure(0, ExitStatus::signaled(SIGABRT), "NCCL error\n"), guilty}),
            R"(============================================================
train.py FAILED: rank 3 of 4 exited with 1: ValueError: bad sample 77
on node-7, pid 1003, 2 min 14 s after its start
From its error file /logs/error.json:
  | Traceback (most recent call last):
  |   File "train.py", line 9, in main
  | ValueError: bad sample 77
It wrote nothing to stderr.
Root Cause (first observed failure): failed (exitcode: 1) local_rank: 3 (pid: 1003) of binary: /usr/bin/python3
  rank      : 3 (local_rank: 3), exitcode  : 1 (pid: 1003), time: 2026-11-20_22:56:49
Log: /logs/stderr.log
1 other failed afterwards: rank 0 killed by SIGABRT
============================================================
)");
}

TEST(VerdictScreen, ShowsAnUnexplainedKill) {
  EXPECT_EQ(
      screen({logged_failure(1, ExitStatus::signaled(SIGKILL), "step 9\n"),
              sample_failure(0, ExitStatus::exited(1)), sample_failure(2, ExitStatus::exited(1)),
              sample_failure(3, ExitStatus::exited(1))}),
      R"(============================================================
train.py FAILED: rank 1 of 4 killed by SIGKILL from outside (not by muster)
on node-7, pid 1001, 2 min 14 s after its start
The last line of its stderr:
  | step 9
Root Cause (first observed failure): failed (exitcode: -9) local_rank: 1 (pid: 1001) of binary: /usr/bin/python3
  rank      : 1 (local_rank: 1), exitcode  : -9 (pid: 1001)  (SIGKILL), time: 2026-11-20_22:56:48
Log: /logs/stderr.log
3 others failed afterwards: ranks 0,2-3 exited with 1
============================================================
)");
}

TEST(VerdictScreen, ShowsAShellScriptWithACrashedCommand) {
  EXPECT_EQ(screen({logged_failure(0, ExitStatus::exited(139),
                                   "./run.sh: line 3:  4711 Segmentation fault  ./solver\n")}),
            R"(============================================================
train.py FAILED: rank 0 of 4 exited with 139, probably because SIGSEGV killed its command
on node-7, pid 1000, 2 min 14 s after its start
The last line of its stderr:
  | ./run.sh: line 3:  4711 Segmentation fault  ./solver
Root Cause (first observed failure): failed (exitcode: 139) local_rank: 0 (pid: 1000) of binary: /usr/bin/python3
  rank      : 0 (local_rank: 0), exitcode  : 139 (pid: 1000), time: 2026-11-20_22:56:48
Log: /logs/stderr.log
============================================================
)");
}

TEST(VerdictScreen, ShowsAnExpiredTimer) {
  HostEvidence evidence;
  evidence.expired_timer = "all_reduce";
  EXPECT_EQ(screen({logged_failure(2, ExitStatus::signaled(SIGKILL), "step 41\n")}, evidence),
            R"(============================================================
train.py FAILED: rank 2 of 4 killed by SIGKILL: its timer "all_reduce" expired
on node-7, pid 1002, 2 min 14 s after its start
What to do: the work under that timer took too long; the program's last lines show where it was
The last line of its stderr:
  | step 41
Root Cause (first observed failure): failed (exitcode: -9) local_rank: 2 (pid: 1002) of binary: /usr/bin/python3
  rank      : 2 (local_rank: 2), exitcode  : -9 (pid: 1002)  (SIGKILL), time: 2026-11-20_22:56:48
Log: /logs/stderr.log
============================================================
)");
}

TEST(VerdictScreen, ShowsAWorkerOnAnotherNode) {
  JobReport report = sample_job(JobEnd::failed);
  report.nnodes = 2;
  report.node_rank = 0;
  report.host = "node-a";
  report.max_restarts = 1;
  report.restarts_used = 1;
  WorkerFailure culprit = logged_failure(5, ExitStatus::exited(1),
                                         "Traceback (most recent call last):\n"
                                         "  File \"train.py\", line 9, in main\n"
                                         "ValueError: bad sample 77\n");
  culprit.local_rank = 1;
  culprit.attempt = 1;
  culprit.stdout_log_path = "/logs/stdout.log";
  report.failures = {culprit, sample_failure(4, ExitStatus::signaled(SIGABRT)), sample_stopped(6),
                     sample_stopped(7)};
  for (WorkerFailure& failure : report.failures) {
    failure.host = "node-b";
    failure.node_rank = 1;
  }
  report.culprit = 0;
  report.cause = cause_of(culprit);
  report.stopped_elsewhere = {0, 1, 2, 3};
  RenderOptions options;
  options.width = 60;
  EXPECT_EQ(render_end(report, options),
            R"(============================================================
train.py FAILED: rank 5 of 8 exited with 1: ValueError: bad sample 77
on node-b (node rank 1), pid 1005, 2 min 14 s after its start, in attempt 1 (0 of 1 restarts left)
The last 3 lines of its stderr:
  | Traceback (most recent call last):
  |   File "train.py", line 9, in main
  | ValueError: bad sample 77
Root Cause (first observed failure): failed (exitcode: 1) local_rank: 1 (pid: 1005) of binary: /usr/bin/python3
  rank      : 5 (local_rank: 1), exitcode  : 1 (pid: 1005), time: 2026-11-20_22:56:48
Log on node-b: /logs/stderr.log
Log on node-b: /logs/stdout.log
1 other failed afterwards: rank 4 killed by SIGABRT
6 others were stopped by muster: ranks 6-7 killed by SIGTERM; ranks 0-3
============================================================
)");
}

TEST(VerdictScreen, ShowsAWorkerStuckInTheKernel) {
  WorkerFailure stuck = logged_failure(1, ExitStatus::signaled(SIGKILL), "saving checkpoint\n");
  stuck.declared = "was in uninterruptible sleep (state D) for 60 s";
  EXPECT_EQ(screen({stuck, sample_stopped(0)}),
            R"(============================================================
train.py FAILED: rank 1 of 4 was in uninterruptible sleep (state D) for 60 s
on node-7, pid 1001, 2 min 14 s after its start
The last line of its stderr:
  | saving checkpoint
Root Cause (first observed failure): failed (exitcode: -9) local_rank: 1 (pid: 1001) of binary: /usr/bin/python3
  rank      : 1 (local_rank: 1), exitcode  : -9 (pid: 1001)  (SIGKILL), time: 2026-11-20_22:56:48
Log: /logs/stderr.log
1 other was stopped by muster: rank 0 killed by SIGTERM
============================================================
)");
}

TEST(VerdictScreen, ShowsAWorkerThatDiedInACollective) {
  WorkerFailure failure = logged_failure(1, ExitStatus::signaled(SIGSEGV), "step 17\n");
  failure.call = "all_reduce #17 of group 'world' for 3.2 s";
  EXPECT_EQ(screen({failure, sample_stopped(0)}),
            R"(============================================================
train.py FAILED: rank 1 of 4 killed by SIGSEGV
on node-7, pid 1001, 2 min 14 s after its start
It was in all_reduce #17 of group 'world' for 3.2 s
The last line of its stderr:
  | step 17
Root Cause (first observed failure): failed (exitcode: -11) local_rank: 1 (pid: 1001) of binary: /usr/bin/python3
  rank      : 1 (local_rank: 1), exitcode  : -11 (pid: 1001)  (SIGSEGV), time: 2026-11-20_22:56:48
Log: /logs/stderr.log
1 other was stopped by muster: rank 0 killed by SIGTERM
============================================================
)");
}

JobReport with_hang(JobReport report, int attempt) {
  report.attempts = {{0, sample_time(-140), std::chrono::seconds{5}, ""},
                     {1, sample_time(-134), std::chrono::seconds{134}, ""}};
  report.hang = sample_hang();
  report.hang->attempt = attempt;
  report.hang->text =
      "rank 5 (pid 1005) never entered all_reduce #1042 of group 'world' (sum of 8 float32); 3 "
      "other ranks have waited 12.4 s; rank 5 is blocked in read() of a pipe";
  return report;
}

TEST(VerdictScreen, ShowsAFailureInAHang) {
  JobReport report = with_hang(sample_job(JobEnd::failed), 1);
  WorkerFailure failure = logged_failure(0, ExitStatus::exited(1), "step 1042\n");
  failure.call = "all_reduce #1042 of group 'world' for 30.1 s";
  judge_failures(report, {failure});
  RenderOptions options;
  options.width = 60;
  EXPECT_EQ(render_end(report, options),
            R"(============================================================
train.py FAILED: rank 0 of 8 exited with 1
on node-7, pid 1000, 2 min 14 s after its start
It was in all_reduce #1042 of group 'world' for 30.1 s
Before the failure: rank 5 (pid 1005) never entered all_reduce #1042 of group 'world' (sum of 8 float32); 3 other ranks have waited 12.4 s; rank 5 is blocked in read() of a pipe
The last line of its stderr:
  | step 1042
Root Cause (first observed failure): failed (exitcode: 1) local_rank: 0 (pid: 1000) of binary: /usr/bin/python3
  rank      : 0 (local_rank: 0), exitcode  : 1 (pid: 1000), time: 2026-11-20_22:56:48
Log: /logs/stderr.log
============================================================
)");
}

TEST(VerdictScreen, ShowsAStopInAHang) {
  JobReport report = with_hang(sample_job(JobEnd::stopped), 1);
  report.stop_signal = SIGINT;
  report.stop_took = std::chrono::milliseconds{2100};
  EXPECT_EQ(render_end(report, {}),
            "muster: stopped by SIGINT after 2.1 s; all workers ended within the grace period\n"
            "muster: before the stop: rank 5 (pid 1005) never entered all_reduce #1042 of group "
            "'world' (sum of 8 float32); 3 other ranks have waited 12.4 s; rank 5 is blocked in "
            "read() of a pipe\n");
}

TEST(VerdictScreen, OmitsAHangOfAnEarlierAttempt) {
  JobReport report = with_hang(sample_job(JobEnd::stopped), 0);
  report.stop_signal = SIGINT;
  report.stop_took = std::chrono::milliseconds{2100};
  EXPECT_EQ(render_end(report, {}),
            "muster: stopped by SIGINT after 2.1 s; all workers ended within the grace period\n");
}

}  // namespace
}  // namespace muster
