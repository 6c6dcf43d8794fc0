// The wire format of a worker's failure and its cause: short fields always, long texts ("words")
// only where they may be shown. Pure.
#pragma once

#include <string>

#include "agent/report/job_report.h"
#include "agent/report/wire_json.h"

namespace muster::wire {

inline constexpr size_t kLongTextBytes = 16384;  // stderr and error file of one worker.

Json worker_json(const WorkerFailure& failure, size_t text_max);
// Its program, its paths, its error file and at most the last 30 lines of its stderr.
Json words_json(const WorkerFailure& failure, size_t long_max, size_t text_max);
Json cause_json(const Cause& cause, size_t text_max);

// `wrong`: as in JsonReader. The fields of words_json stay empty if no words were sent.
WorkerFailure read_worker(const Json& json, std::string& wrong);
void read_words(const Json& json, WorkerFailure& failure, std::string& wrong);
Cause read_cause(const Json& json, std::string& wrong);

}  // namespace muster::wire
