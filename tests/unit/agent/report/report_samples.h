// Complete, plausible failures and jobs for the tests of agent/report: each test changes only the
// field that it is about. Times and pids are fixed, so that whole texts can be compared.
#pragma once

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "agent/report/cause.h"
#include "agent/report/failure_wire.h"
#include "agent/report/job_report.h"
#include "agent/report/judged_attempt.h"
#include "agent/report/signs.h"

namespace muster {

// 2026-11-20 22:56:48.123 UTC
inline constexpr int64_t kSampleSecond = 1795215408;

// How torch and gloo tell that a peer is gone.
inline const std::string kPeerTraceback =
    "Traceback (most recent call last):\n  File \"a.py\", line 9\nRuntimeError: "
    "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
    "[127.0.0.1]:4711\n";

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
  failure.part = Part::bystander;
  return failure;
}

// The steady clock of these tests starts in 1970.
inline Instant sample_instant(WallTime time) {
  return Instant{time.time_since_epoch()};
}

// The record of the n-th worker to end: 10 ms after the previous one, and 5 ms after it last
// printed.
inline WorkerRecord record_of(const WorkerFailure& failure, int n = 0,
                              const HostEvidence& machine = {}) {
  WorkerRecord record;
  record.failure = failure;
  record.machine = machine;
  record.ended = sample_instant(failure.time) + n * std::chrono::milliseconds{10};
  record.started = *record.ended - failure.ran;
  record.order = n;
  record.at_stop = failure.stopped_by_muster ? AtStop::running : AtStop::ended;
  record.printed.err_tail = failure.stderr_tail;
  record.printed.err_total = record.printed.err_total_before_stop = failure.stderr_tail.size();
  record.printed.last_output = *record.ended - std::chrono::milliseconds{5};
  const bool after_stop = *record.printed.last_output >= sample_instant(failure.time);  // stop_of()
  if (failure.stopped_by_muster && after_stop) record.printed.err_total_before_stop = 0;
  record.printed.err_times.add(record.printed.err_total, *record.printed.last_output);
  return record;
}

inline std::optional<StopMark> stop_of(const WorkerFailure& failure) {
  if (!failure.stopped_by_muster) return std::nullopt;
  return StopMark{sample_instant(failure.time), SIGTERM, true};
}

inline WorkerEvidence evidence_of(const WorkerRecord& record,
                                  const std::optional<StopMark>& stop = {}) {
  const Examination examined = examine(record, stop, Instant{});
  return {examined.signs, record.failure, classify(record.failure, record.machine, examined.error)};
}

// The cause derived from this worker alone.
inline Cause cause_of(const WorkerFailure& failure, const HostEvidence& machine = {}) {
  return evidence_of(record_of(failure, 0, machine), stop_of(failure)).cause;
}

// Judges an attempt in which these failed, in this order. `machine`: evidence for the first one.
inline void judge_failures(JobReport& report, const std::vector<WorkerFailure>& failures,
                           const HostEvidence& machine = {}) {
  NodeEvidence node;
  for (const WorkerFailure& failure : failures) {
    const int n = static_cast<int>(node.workers.size());
    const WorkerRecord record = record_of(failure, n, n == 0 ? machine : HostEvidence{});
    node.workers.push_back(evidence_of(record, stop_of(failure)));
  }
  apply_judged(report, judge_attempt({node}));
}

// The verdict that these bytes carry. Fails the test if there is none.
inline JudgedAttempt decoded_verdict(const std::string& detail) {
  Result<JudgedAttempt> judged = decode_verdict(detail);
  if (judged) return *std::move(judged);
  ADD_FAILURE() << judged.error().message;
  return {};
}

// JSON as torch's @record writes it.
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

inline HangReport sample_hang() {
  HangReport hang;
  hang.ranks = {5};
  hang.what = "never_entered";
  hang.by = "time";
  hang.group = "world";
  hang.operation = "all_reduce (sum) of 8 float32";
  hang.ordinal = 1042;
  hang.waiting = {0, 1, 2};
  hang.seconds = 12.4;
  hang.confidence = "high";
  hang.text = "rank 5 never entered all_reduce #1042";
  return hang;
}

// The field in what a wire::JsonReader says is wrong, "FIELD is not ...".
inline std::string field_of(const std::string& wrong) {
  return wrong.substr(0, wrong.find(" is not "));
}

}  // namespace muster
