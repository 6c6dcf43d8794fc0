// How a job with many nodes comes to one verdict. Each node packs what its workers left behind into
// the `detail` of a membership::Evidence; the job's host has them all judged (judge_testimonies)
// and packs the answer into the `detail` of a membership::Verdict, which every agent, the culprit's
// own included, puts into its report. So all nodes print the same block and exit with the same
// code, and the rendezvous passes on what it need not read. The bytes come from the network:
// decoding checks every type and range, and what a program wrote is cleaned when it is rendered, as
// always. JSON, of at most 64 KiB for a verdict and 256 KiB for the evidence of a node. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "agent/report/job_report.h"
#include "agent/report/judged_attempt.h"
#include "rendezvous/base/error.h"
#include "rendezvous/membership/agent_protocol.h"
#include "rendezvous/membership/membership.h"

namespace muster {

inline constexpr size_t kVerdictBytesMax = 65536;

// The signs of every worker come first, since the judge needs those of all; there is room for those
// of some 600, and whoever muster stopped is the first to be left out. Then come the facts (pid,
// device, cause) and the words (the last 30 lines of stderr and the error file, each of 16 KiB at
// most, its shape kept), as long as there is room: the likely culprits' first, and none of those
// that muster stopped. A worker of which only the signs are told is `summary_only`. `since`: the
// instant that times are told from.
std::string encode_evidence(const NodeEvidence& node, Instant since);

// Fails on what encode_evidence could not have written. Instants become those after `since`, in the
// clock of the reader, each `clock_error` wrong at most.
Result<NodeEvidence> decode_evidence(std::string_view bytes, Instant since, Duration clock_error);

// The same with the instant, for a file: {"since_ns": ..., "node": {...}}.
std::string evidence_file(const NodeEvidence& node, Instant since);

enum class VerdictLength { whole, line };  // `line`: what a restart line shows.
std::string encode_verdict(const JudgedAttempt& judged,
                           VerdictLength length = VerdictLength::whole);
Result<JudgedAttempt> decode_verdict(std::string_view bytes);

// For membership::Judge: the judge of the host of a job. A node whose evidence never came, or
// cannot be read, counts by what its failure says in short.
membership::Judgement judge_testimonies(const std::vector<membership::Testimony>& testimonies);

// "exited with 1: ValueError: boom", in one clean line.
std::string verdict_sentence(const JudgedAttempt& judged);

// What a verdict says whose detail is missing or cannot be read: rank, node and reason.
JudgedAttempt verdict_in_short(const membership::Verdict& verdict);

// All that an End says: how the job ended, by whose doing, and the counts of the job. That
// processes of this node outlived SIGKILL stays the end of its report.
void apply_end(JobReport& report, const membership::End& end);

}  // namespace muster
