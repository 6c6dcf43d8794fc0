// The verdict's lines for all ranks but the culprit: "7 others failed afterwards: ranks 1-3,5
// exited with 1; rank 6 killed by SIGABRT", and the torchrun-shaped line for one failure. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "agent/report/job_report.h"

namespace muster {

// Writes one line for each kind of other worker: raised the culprit's error as well, failed at the
// same moment, failed afterwards, failed but hung until muster stopped it, failed while muster
// stopped it, just stopped. Empty if there is none. `elsewhere`: ranks of other nodes known only to
// have been stopped; ascending.
std::string others_text(const std::vector<WorkerFailure>& failures, size_t culprit,
                        const std::vector<int>& elsewhere = {}, int world_size = 0);

// "rank 1 exited with 1: ValueError: boom; ranks 2-3 killed by SIGSEGV".
std::string ends_text(const std::vector<WorkerFailure>& failures);

// "rank 0 had 30.0 s and was in evaluate (train.py:5); ranks 1-3 waited for it in barrier #7".
std::string left_text(std::vector<LeftRank> left);

// "failed (exitcode: 7) local_rank: 1 (pid: 10303) of binary: /usr/bin/python3": log parsers look
// for this line of torchrun. "pid: unknown" if it is unknown.
std::string failed_line(const WorkerFailure& failure);

// "1003", or "unknown" for a worker on another node that did not report it.
std::string pid_text(const WorkerFailure& failure);

}  // namespace muster
