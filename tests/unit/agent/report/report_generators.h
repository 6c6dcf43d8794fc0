// Generators of hostile failures and jobs for the property tests of agent/report. Strings hold
// control characters, broken UTF-8 and pieces of tracebacks.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <rapidcheck.h>

#include "agent/report/cause.h"
#include "agent/report/verdict.h"
#include "tests/unit/agent/report/report_samples.h"

namespace muster {

// Bytes as programs write them: text, broken UTF-8, escape sequences, progress bars, tracebacks.
inline rc::Gen<std::string> any_output() {
  const auto piece = rc::gen::oneOf(
      rc::gen::container<std::string>(rc::gen::arbitrary<char>()),
      rc::gen::element<std::string>("\n", "\r", "\x1b[2J", "\x1b]0;t\x07", "\x1b[", "\xC2\x9B",
                                    "\xE2\x80\xAE", "\xff", "Traceback (most recent call last):\n",
                                    "  File \"a.py\", line 1\n", "ValueError: boom\n",
                                    "terminate called after throwing an instance of 'x'\n",
                                    "  what():  boom\n", "thread 'main' panicked at a.rs:\n",
                                    "NCCL error\n", "\n\n\n", "  | \n", "{\"message\": "));
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(piece),
                      [](const std::vector<std::string>& pieces) {
                        std::string text;
                        for (const std::string& one : pieces)
                          text += one;
                        return text;
                      });
}

inline rc::Gen<ExitStatus> any_failed_status() {
  return rc::gen::oneOf(
      rc::gen::map(rc::gen::inRange(1, 256), [](int code) { return ExitStatus::exited(code); }),
      rc::gen::map(rc::gen::inRange(1, 65), [](int n) { return ExitStatus::signaled(n); }),
      rc::gen::map(rc::gen::inRange(1, 32), [](int n) { return ExitStatus::signaled(n, true); }));
}

inline WorkerFailure any_failure(int rank) {
  WorkerFailure failure = sample_failure(rank, *any_failed_status());
  failure.stopped_by_muster = *rc::gen::arbitrary<bool>();
  failure.time = sample_time(*rc::gen::inRange(-5, 5));
  failure.stderr_tail = *any_output();
  if (*rc::gen::arbitrary<bool>()) failure.error_file_content = *any_output();
  if (*rc::gen::arbitrary<bool>()) failure.device = *any_output();
  if (*rc::gen::arbitrary<bool>()) failure.call = *any_output();
  return failure;
}

inline HostEvidence any_evidence() {
  HostEvidence evidence;
  evidence.oom_kills = *rc::gen::inRange(0, 3);
  evidence.machine_oom_kills = *rc::gen::inRange(0, 3);
  evidence.shm_free_bytes = *rc::gen::inRange(-1, 100);
  evidence.shm_total_bytes = *rc::gen::inRange(0, 100);
  evidence.core_limit_bytes = *rc::gen::inRange(-1, 1);
  return evidence;
}

inline JobReport any_failed_job() {
  JobReport report = sample_job(JobEnd::failed);
  const int count = *rc::gen::inRange(1, 12);
  std::vector<WorkerFailure> failures;
  for (int rank = 0; rank < count; ++rank)
    failures.push_back(any_failure(rank));
  failures[0].stopped_by_muster = false;  // At least one worker failed by itself.
  judge_failures(report, failures, any_evidence());
  report.program = *any_output();
  if (*rc::gen::arbitrary<bool>()) {
    report.attempts.push_back({0, sample_time(), Duration{1}, ""});
    report.hang = sample_hang();
    report.hang->text = *any_output();
  }
  return report;
}

// True if it cannot control a terminal.
inline bool is_printable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t';
  });
}

}  // namespace muster
