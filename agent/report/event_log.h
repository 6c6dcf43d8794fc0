// events.jsonl: one JSON object per line for each event of a job, in order, for programs that watch
// it. The schema is in schema.md. Pure: the caller appends the line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/report/job_report.h"

namespace muster {

enum class JobEventKind {
  job_started,       // text: the program
  round_ready,       // text: MASTER_ADDR:MASTER_PORT
  worker_started,    // rank, local_rank, pid
  worker_exited,     // rank, local_rank, pid, status, seconds (it ran)
  attempt_failed,    // rank of the culprit (host and node_rank: on another node), text: the cause
  restarting,        // seconds: the back-off
  stopping,          // signal: the one being sent, seconds: the grace
  killing,           // text: what outlived the grace
  stopped,           // seconds: how long it took
  leftovers,         // text: names of what the ranks left running
  signal_received,   // signal
  signal_forwarded,  // signal
  suspended,
  resumed,
  timer_expired,       // rank, pid, signal, text: its scope
  waiting,             // text: nodes here, nodes missing, what happens when; or hang: a notice
  hang,                // hang: a verdict
  mismatch,            // hang: a verdict on calls that do not match
  withdrawn,           // hang: the verdict that was wrong
  membership_changed,  // text: which node came, went or was lost
  straggler,           // rank: made others wait most; seconds: their average wait; text: all such
  note,                // text
  job_ended,           // text: the outcome's name, exit_code
};

struct JobEvent {
  WallTime time;
  JobEventKind kind = JobEventKind::note;
  std::optional<int> attempt;
  std::optional<int> rank;
  std::optional<int> local_rank;
  std::optional<int> node_rank;  // Another node's; set together with `host`.
  std::optional<pid_t> pid;
  std::optional<ExitStatus> status;
  std::optional<int> signal;
  std::optional<double> seconds;
  std::optional<int> exit_code;
  std::string host;
  std::string text;
  std::optional<HangReport> hang;  // Its text replaces `text`.
};

// One line with its newline. Bytes that are not UTF-8 become U+FFFD.
std::string event_line(const JobEvent& event);

// The hang detector's findings as the nodes of a job send them to each other: the lines for people
// and the event for programs. Decoding treats its input as hostile.
struct HangNews {
  JobEventKind kind = JobEventKind::note;  // note, waiting, hang, mismatch, withdrawn or straggler.
  uint64_t number = 0;                     // The finding's; 0 for a note.
  HangReport report;                       // Empty for a note; a straggler has ranks and seconds.
  std::string text;       // The lines for people, without the prefix; may be empty.
  int failed_rank = -1;   // Rank that counts as failed from now on; -1: none.
  bool is_final = false;  // True if that failure permits no restart.

  friend bool operator==(const HangNews&, const HangNews&) = default;
};

// Encodes to at most kHangNewsBytesMax; longer texts are cut.
inline constexpr size_t kHangNewsBytesMax = 12288;
std::string encode_hang_news(const HangNews& news);
std::optional<HangNews> decode_hang_news(std::string_view bytes);

}  // namespace muster
