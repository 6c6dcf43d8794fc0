// The wire format of a worker's failure and its cause: short fields always, long texts ("words")
// only if they may be shown. Pure.
#pragma once

#include <cmath>
#include <csignal>
#include <string>

#include "agent/report/job_report.h"
#include "agent/report/wire_json.h"

namespace muster::wire {

inline constexpr size_t kLongTextBytes = 16384;  // stderr and error file of one worker.

void fields(auto& a, Like<ExitStatus> auto& status) {
  int code = status.signed_code();
  bool core = status.core_dumped;
  a.number("code", code, -SIGRTMAX, 255);
  a.flag("core", core);
  if constexpr (kReads<decltype(a)>) status = ExitStatus::from_signed_code(code, core);
}

void fields(auto& a, Like<WorkerFailure> auto& m) {
  a.number("rank", m.rank, 0, kCountMax);
  a.number("local_rank", m.local_rank, 0, kCountMax);
  a.number("pid", m.pid, 0, kCountMax);
  a.number("attempt", m.attempt, 0, kCountMax);
  a.text("host", m.host);
  a.number("node_rank", m.node_rank, -1, kCountMax);
  a.object("status", m.status);
  a.flag("stopped", m.stopped_by_muster);
  a.one_of("part", m.part, Part::crashed);
  a.text("sentence", m.sentence);
  a.text_if_any("exception", m.exception);
  a.text("declared", m.declared);
  a.text("device", m.device);
  a.text_if_any("call", m.call);
  auto since_epoch = m.time.time_since_epoch();
  nanoseconds(a, "time_ns", since_epoch, 0, kTimeMax);
  nanoseconds(a, "ran_ns", m.ran, 0, kTimeMax);
  a.number("max_rss_kib", m.max_rss_kib, 0, kBigMax);
  const bool fits = m.cpu_s >= 0 && m.cpu_s * 1e6 <= static_cast<double>(kBigMax);
  int64_t cpu_us = fits ? std::llround(m.cpu_s * 1e6) : 0;
  a.number("cpu_us", cpu_us, 0, kBigMax);
  a.flag("summary", m.summary_only);
  if constexpr (kReads<decltype(a)>) {
    m.time = WallTime{since_epoch};
    m.cpu_s = static_cast<double>(cpu_us) / 1e6;
  }
}

void fields(auto& a, Like<Cause> auto& m) {
  a.one_of("kind", m.kind, FailureClass::limit);
  a.text("sentence", m.sentence);
  a.text("exception", m.exception);
  a.text("remedy", m.remedy);
}

void fields(auto& a, Like<Error> auto& m) {
  auto code = static_cast<int>(m.code);
  a.number("code", code, 1, 255);
  a.text("message", m.message);
  if constexpr (kReads<decltype(a)>) m.code = static_cast<ExitCode>(code);
}

// Encodes the worker's program, paths, error file and at most the last 30 lines of stderr.
Json words_json(const WorkerFailure& failure, size_t long_max, size_t text_max);

void read_words(const Json& json, WorkerFailure& failure, std::string& wrong);

}  // namespace muster::wire
