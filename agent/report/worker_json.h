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
  a("core", core);
  if constexpr (kReads<decltype(a)>) status = ExitStatus::from_signed_code(code, core);
}

void fields(auto& a, Like<WorkerFailure> auto& m) {
  a.number("rank", m.rank, 0, kCountMax);
  a.number("local_rank", m.local_rank, 0, kCountMax);
  a.number("pid", m.pid, 0, kCountMax);
  a.number("attempt", m.attempt, 0, kCountMax);
  a("host", m.host);
  a.number("node_rank", m.node_rank, -1, kCountMax);
  a("status", m.status);
  a("stopped", m.stopped_by_muster);
  one_of(a, "part", m.part, Part::crashed);
  a("sentence", m.sentence);
  a.if_any("exception", m.exception);
  a("declared", m.declared);
  a("device", m.device);
  a.if_any("call", m.call);
  auto since_epoch = m.time.time_since_epoch();
  a.number("time_ns", since_epoch, 0, kTimeMax);
  a.number("ran_ns", m.ran, 0, kTimeMax);
  a.number("max_rss_kib", m.max_rss_kib, 0, kBigMax);
  const bool fits = m.cpu_s >= 0 && m.cpu_s * 1e6 <= static_cast<double>(kBigMax);
  int64_t cpu_us = fits ? std::llround(m.cpu_s * 1e6) : 0;
  a.number("cpu_us", cpu_us, 0, kBigMax);
  a("summary", m.summary_only);
  if constexpr (kReads<decltype(a)>) {
    m.time = WallTime{since_epoch};
    m.cpu_s = static_cast<double>(cpu_us) / 1e6;
  }
}

void fields(auto& a, Like<Cause> auto& m) {
  one_of(a, "kind", m.kind, FailureClass::limit);
  a("sentence", m.sentence);
  a("exception", m.exception);
  a("remedy", m.remedy);
}

void fields(auto& a, Like<Error> auto& m) {
  a.number("code", m.code, 1, 255);
  a("message", m.message);
}

// Encodes the worker's program, paths, error file and at most the last 30 lines of stderr.
Json words_json(const WorkerFailure& failure, size_t long_max, size_t text_max);

void read_words(const Json& json, WorkerFailure& failure, std::string& wrong);

}  // namespace muster::wire
