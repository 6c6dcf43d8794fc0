// Lets a job with many nodes arrive at one verdict. Each node packs what its workers left behind
// into the `detail` of a membership::Evidence; the job's host judges them all (judge_testimonies)
// and packs the answer into the `detail` of a membership::Verdict, which every agent, the culprit's
// included, puts into its report. So all nodes print the same block and exit with the same code;
// the rendezvous forwards the bytes unread. They come from the network: decoding checks every type
// and range, and programs' text is cleaned when it is rendered. JSON, at most 64 KiB for a verdict
// and 256 KiB for the evidence of a node. Pure.
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

// Encodes the signs of all workers first, since the judge needs all of them; there is room for
// about 600, and workers that muster stopped are left out first. While there is room, and likely
// culprits first, the facts (pid, device, cause) and the words (last 30 lines of stderr and the
// error file, each at most 16 KiB, its shape kept) follow; workers that muster stopped get no
// words. A worker with signs only is `summary_only`. Times are relative to `since`.
std::string encode_evidence(const NodeEvidence& node, Instant since);

// Fails on anything that encode_evidence cannot have written. `since`: the writer's `since` on the
// reader's clock, wrong by at most `clock_error`.
Result<NodeEvidence> decode_evidence(std::string_view bytes, Instant since, Duration clock_error);

// Encodes the evidence with `since`, for a file: {"since_ns": ..., "node": {...}}.
std::string evidence_file(const NodeEvidence& node, Instant since);

enum class VerdictLength { whole, line };  // `line`: what a restart line shows.
std::string encode_verdict(const JudgedAttempt& judged,
                           VerdictLength length = VerdictLength::whole);
Result<JudgedAttempt> decode_verdict(std::string_view bytes);

// The judge at the host of a job, for membership::Judge. A node whose evidence is missing or
// unreadable counts by its short failure report.
membership::Judgement judge_testimonies(const std::vector<membership::Testimony>& testimonies);

// "exited with 1: ValueError: boom", in one clean line.
std::string verdict_sentence(const JudgedAttempt& judged);

// Replaces a verdict whose detail is missing or unreadable: rank, node and reason.
JudgedAttempt verdict_in_short(const membership::Verdict& verdict);

// Applies an End: how the job ended, what ended it, and the counts of the job. If processes of this
// node outlived SIGKILL, that remains the end of its report.
void apply_end(JobReport& report, const membership::End& end);

}  // namespace muster
