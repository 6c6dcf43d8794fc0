// How a worker's failure and its cause go over the wire: what is short always, what is long where
// somebody may want to read it. Pure.
#pragma once

#include <string>

#include "agent/report/job_report.h"
#include "agent/report/wire_json.h"

namespace muster::wire {

inline constexpr size_t kLongTextBytes = 16384;  // stderr and error file of one worker.

Json worker_json(const WorkerFailure& failure, size_t text_max);
// What it has said, and where it is kept. stderr: at most its last 30 lines.
Json words_json(const WorkerFailure& failure, size_t long_max, size_t text_max);
Json cause_json(const Cause& cause, size_t text_max);

// `wrong`: as in JsonReader. What the words would say is empty where there are none.
WorkerFailure read_worker(const Json& json, std::string& wrong);
void read_words(const Json& json, WorkerFailure& failure, std::string& wrong);
Cause read_cause(const Json& json, std::string& wrong);

}  // namespace muster::wire
