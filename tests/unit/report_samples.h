// Failures and jobs that several tests of agent/report start from: complete and plausible, so that
// a test changes only the field that it is about. The wall clock in them is fixed, and so are pids,
// so that whole texts can be compared.
#pragma once

#include <chrono>
#include <csignal>
#include <string>

#include "agent/report/job_report.h"

namespace muster {

// 2026-11-20 22:56:48.123 UTC
inline constexpr int64_t kSampleSecond = 1795215408;

inline WallTime sample_time(double seconds_later = 0) {
  using std::chrono::duration;
  const auto later = std::chrono::duration_cast<Duration>(duration<double>(seconds_later));
  return WallTime{std::chrono::seconds{kSampleSecond} + std::chrono::milliseconds{123} + later};
}

inline WorkerFailure sample_failure(int rank, ExitStatus status) {
  WorkerFailure failure;
  failure.rank = rank;
  failure.local_rank = rank;
  failure.pid = 1000 + rank;
  failure.host = "node-7";
  failure.program = "train.py";
  failure.binary = "/usr/bin/python3";
  failure.status = status;
  failure.time = sample_time();
  failure.ran = std::chrono::milliseconds{134'500};
  return failure;
}

inline WorkerFailure sample_stopped(int rank, ExitStatus status = ExitStatus::signaled(SIGTERM)) {
  WorkerFailure failure = sample_failure(rank, status);
  failure.stopped_by_muster = true;
  return failure;
}

// The shape that torch's @record writes.
inline std::string recorded_error(const std::string& message, const std::string& callstack,
                                  const std::string& timestamp) {
  return R"({"message": {"message": ")" + message + R"(", "extraInfo": {"py_callstack": ")" +
         callstack + R"(", "timestamp": ")" + timestamp + R"("}}})";
}

inline JobReport sample_job(JobEnd end) {
  JobReport report;
  report.end = end;
  report.run_id = "run-1";
  report.program = "train.py";
  report.host = "node-7";
  report.world_size = 8;
  report.local_world_size = 8;
  report.started = sample_time(-140);
  report.ended = sample_time(1);
  return report;
}

}  // namespace muster
