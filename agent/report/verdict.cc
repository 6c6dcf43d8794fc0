#include "agent/report/verdict.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "agent/report/error_file.h"
#include "agent/report/last_words.h"
#include "agent/report/others.h"
#include "agent/report/quoted_lines.h"
#include "agent/report/text.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

constexpr size_t kStderrLines = 30;
constexpr size_t kOtherStderrLines = 8;  // A second worker's; the culprit then gets fewer.
constexpr size_t kHeadlineCharacters = 400;
constexpr size_t kHangCharacters = 1000;

std::string coloured(const RenderOptions& options, const char* sgr, const std::string& text) {
  return options.colour ? fmt::format("\x1b[{}m{}\x1b[0m", sgr, text) : text;
}

// " on node-b" if the job has many nodes, else empty.
std::string on_host(const JobReport& report, const WorkerFailure& failure) {
  return node_rank_of(report, failure) ? " on " + clean_line(failure.host) : std::string();
}

// All nodes print the same, so use the name that the program has on the culprit's node.
const std::string& program_of(const JobReport& report, const WorkerFailure& culprit) {
  const bool of_a_node = node_rank_of(report, culprit) && !culprit.program.empty();
  return of_a_node ? culprit.program : report.program;
}

std::string headline(const JobReport& report, const WorkerFailure& culprit) {
  const std::string world =
      report.world_size > 1 ? fmt::format(" of {}", report.world_size) : std::string();
  return clean_line(fmt::format("{} FAILED: rank {}{} {}", program_of(report, culprit),
                                culprit.rank, world, report.cause.sentence),
                    kHeadlineCharacters);
}

std::string attempts_text(const JobReport& report, const WorkerFailure& culprit) {
  if (report.max_restarts == 0) return {};
  const int left = report.max_restarts - report.restarts_used;
  return fmt::format(", in attempt {} ({} of {} restarts left)", culprit.attempt, left,
                     report.max_restarts);
}

// Attempts in a row that ended alike.
struct AlikeAttempts {
  int first = 0;
  int last = 0;
  std::vector<int> ranks;
  const AttemptRecord* record = nullptr;  // The first one's whose culprit ended by itself, if any.
};

// A rank that raises the exception may be stopped before it ends.
bool ended_alike(const AttemptRecord& one, const AttemptRecord& other) {
  if (!one.culprit || !other.culprit || one.culprit->exception != other.culprit->exception)
    return false;
  return one.culprit->status == other.culprit->status || !one.culprit->exception.empty();
}

std::vector<AlikeAttempts> alike_attempts(const std::vector<AttemptRecord>& attempts) {
  std::vector<AlikeAttempts> alike;
  for (const AttemptRecord& one : attempts) {
    if (one.why_ended.empty()) continue;  // A change of the job's nodes ended it.
    if (alike.empty() || !ended_alike(*alike.back().record, one))
      alike.push_back({one.attempt, one.attempt, {}, &one});
    alike.back().last = one.attempt;
    if (!one.culprit) continue;
    alike.back().ranks.push_back(one.culprit->rank);
    const AttemptRecord*& record = alike.back().record;
    if (record->culprit->status.signal() > 0 && one.culprit->status.signal() == 0) record = &one;
  }
  return alike;
}

// A line for each kind of failure of a job that was restarted, the first one's first: later ones
// may only follow from it, as from a checkpoint that it left half written. Not with several nodes,
// which may have seen different attempts, but print one verdict.
std::string attempts_lines(const JobReport& report) {
  constexpr size_t kLinesMax = 6;
  std::vector<AlikeAttempts> alike = alike_attempts(report.attempts);
  if (report.nnodes > 1 || alike.empty() || alike.front().first == report.attempts.back().attempt)
    return {};
  std::string text;
  for (size_t i = 0; i < alike.size(); ++i) {
    if (alike.size() > kLinesMax && i == kLinesMax / 2) {
      const size_t left_out = alike.size() - kLinesMax;
      text += fmt::format("({} more that differ)\n", left_out);
      i += left_out;
    }
    auto& [first, last, ranks, record] = alike[i];
    std::ranges::sort(ranks);
    const auto repeated = std::ranges::unique(ranks);
    ranks.erase(repeated.begin(), repeated.end());
    std::string line = first == last ? fmt::format("Attempt {}: ", first)
                                     : fmt::format("Attempts {} to {}: ", first, last);
    line += record->culprit ? fmt::format("{} {}", ranks_text(ranks), record->culprit->sentence)
                            : record->why_ended;
    if (first != last)
      line += ", the same each time";
    else if (record->culprit)
      line += fmt::format(", {} after its start", duration_text(record->culprit->ran));
    text += clean_line(line, kHeadlineCharacters) + "\n";
  }
  return text;
}

std::string who_line(const JobReport& report, const WorkerFailure& culprit) {
  const std::string node = node_text(culprit.host, node_rank_of(report, culprit).value_or(-1));
  if (culprit.summary_only) return "on " + node + ", which could not report more";
  std::string line = fmt::format("on {}, pid {}", node, pid_text(culprit));
  if (!culprit.device.empty()) line += ", " + culprit.device;
  line += ", " + duration_text(culprit.ran) + " after its start" + attempts_text(report, culprit);
  return clean_line(line, kHeadlineCharacters);
}

void append_quoted(std::string& text, const std::vector<std::string>& lines) {
  for (const std::string& line : lines)
    text += line.empty() ? "  |\n" : "  | " + line + "\n";
}

// True if the lines contain it as it is, or as the summary of a chain of exceptions.
bool shows(const std::vector<std::string>& lines, std::string_view exception) {
  const std::string all = fmt::format("{}", fmt::join(lines, "\n"));
  return contains(all, exception) || last_words(all) == exception;
}

// Returns the error file's lines if stderr does not show the exception (the program redirected it,
// or it is older than the tail).
std::vector<std::string> recorded_lines(const WorkerFailure& culprit, const Cause& cause,
                                        const std::vector<std::string>& stderr_lines) {
  if (!culprit.error_file_content) return {};
  const std::optional<WorkerError> error = parse_error_file(*culprit.error_file_content);
  if (!error || (!cause.exception.empty() && shows(stderr_lines, cause.exception))) return {};
  return quoted_lines(error->callstack.empty() ? error->message : error->callstack,
                      kStderrLines / 2);
}

void append_stream(std::string& text, const char* stream, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  text += lines.size() == 1 ? fmt::format("The last line of its {}:\n", stream)
                            : fmt::format("The last {} lines of its {}:\n", lines.size(), stream);
  append_quoted(text, lines);
}

void keep_last(std::vector<std::string>& lines, size_t lines_max) {
  if (lines.size() > lines_max)
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(lines_max));
}

// Quotes stdout if stderr is empty, or if only stdout shows the error.
void append_own_words(std::string& text, const WorkerFailure& culprit, const Cause& cause,
                      size_t lines_max) {
  std::vector<std::string> lines = quoted_lines(culprit.stderr_tail, lines_max);
  const std::vector<std::string> recorded = recorded_lines(culprit, cause, lines);
  if (!recorded.empty()) {
    text += fmt::format("From its error file {}:\n", clean_line(culprit.error_file_path));
    append_quoted(text, recorded);
    keep_last(lines, lines_max - recorded.size());
  }
  std::vector<std::string> out_lines = quoted_lines(culprit.stdout_tail, lines_max / 2);
  const bool only_out_shows = !cause.exception.empty() && recorded.empty() &&
                              !shows(lines, cause.exception) && shows(out_lines, cause.exception);
  if (!lines.empty() && !only_out_shows) return append_stream(text, "stderr", lines);
  if (lines.empty()) {
    text +=
        culprit.unread ? "What it printed last was not read.\n" : "It wrote nothing to stderr.\n";
    out_lines = quoted_lines(culprit.stdout_tail, lines_max);
  }
  append_stream(text, "stdout", out_lines);
  keep_last(lines, lines_max - out_lines.size());
  append_stream(text, "stderr", lines);
}

// Appends the output of another rank that is part of the answer: one that may also have failed
// first, or one that reports what the culprit did to it.
void append_other(std::string& text, const WorkerFailure& other, const std::string& where,
                  const std::string& lead) {
  text += clean_line(fmt::format("{} rank {}{} {}", lead, other.rank, where, other.sentence),
                     kHeadlineCharacters) +
          "\n";
  append_quoted(text, quoted_lines(other.stderr_tail, kOtherStderrLines));
}

std::string part_of_others(const JobReport& report) {
  const WorkerFailure& culprit = report.the_culprit();
  std::string text;
  if (report.reason == Reason::first_victim) {
    text +=
        "It blames another rank or a lost connection, but no other rank failed by itself: the "
        "first to fail may have left no trace\n";
  }
  for (const WorkerFailure& failure : report.failures) {
    if (failure.part != Part::simultaneous) continue;
    const bool has_more = culprit.stderr_tail.empty() && !failure.stderr_tail.empty();
    if (!has_more && failure.sentence == report.cause.sentence) continue;
    append_other(text, failure, on_host(report, failure),
                 "At the same moment, as far as can be determined:");
    break;  // There is room for only one.
  }
  if (report.witness) {
    const WorkerFailure& witness = report.failures[*report.witness];
    append_other(text, witness, on_host(report, witness), "Its first victim:");
  }
  return text;
}

// The keys, their order and their spelling are torchrun's; without `whole_block` only what scripts
// look for.
void append_root_cause(std::string& text, const WorkerFailure& culprit, const Cause& cause,
                       const RenderOptions& options) {
  const ExitStatus& status = culprit.status;
  const int code = status.signed_code();
  const std::string signal = status.kind == ExitStatus::Kind::signaled
                                 ? fmt::format("  ({})", signal_name(status.value))
                                 : std::string();
  const std::string time = culprit.summary_only ? std::string("unknown")
                                                : wall_time_text(culprit.time, options.utc_offset);
  const std::string rank =
      fmt::format("  rank      : {} (local_rank: {})", culprit.rank, culprit.local_rank);
  const std::string exit =
      fmt::format("exitcode  : {} (pid: {}){}", code, pid_text(culprit), signal);
  text += "Root Cause (first observed failure):";
  if (!options.whole_block) {
    text += fmt::format(" {}\n{}, {}, time: {}\n", failed_line(culprit), rank, exit, time);
    return;
  }
  text += fmt::format("\n  time      : {}\n", time);
  text += fmt::format("  host      : {}\n", clean_line(culprit.host));
  text += fmt::format("{}\n  {}\n", rank, exit);
  if (culprit.error_file_content) {
    text += fmt::format("  error_file: {}\n", clean_line(culprit.error_file_path));
  }
  text += fmt::format("  traceback : {}\n",
                      clean_line(cause.exception.empty() ? cause.sentence : cause.exception));
  text += "  " + failed_line(culprit) + "\n";
}

// `where`: " on node-b" in a job with many nodes, which all print the same path.
void append_logs(std::string& text, const WorkerFailure& culprit, const std::string& where) {
  if (culprit.stderr_log_path.empty() && culprit.stdout_log_path.empty()) {
    const std::string& beside = culprit.error_file_path;
    const std::string folder = beside.substr(0, beside.rfind('/'));
    if (folder.empty())
      text += "Log: none was kept (--log-dir DIR --tee 3 keeps both streams of every rank)\n";
    else if (culprit.unread)
      text += fmt::format("Log{}: the disk of {} does not answer\n", where, clean_line(folder));
    else if (culprit.stderr_tail.empty() && culprit.stdout_tail.empty())
      text += "Log: it printed nothing\n";
    else
      text += fmt::format(
          "Log{}: none could be written to {}; make room there (space, quota, `ulimit -f`), or "
          "name another folder with --log-dir\n",
          where, clean_line(folder));
    return;
  }
  for (const std::string* path : {&culprit.stderr_log_path, &culprit.stdout_log_path}) {
    if (!path->empty()) text += "Log" + where + ": " + clean_line(*path) + "\n";
  }
}

// Describes a hang that was not resolved when the last attempt ended; empty if there was none.
std::string hang_line(const JobReport& report, std::string_view lead) {
  const bool stands = report.hang && !report.attempts.empty() &&
                      report.hang->attempt == report.attempts.back().attempt;
  if (!stands) return {};
  return clean_line(fmt::format("{}{}", lead, report.hang->text), kHangCharacters) + "\n";
}

std::string render_failure(const JobReport& report, const RenderOptions& options) {
  // A worker that was declared failed but never ended has nothing to show.
  if (!report.culprit)
    return "muster: " + report.program + " FAILED: no worker's exit was observed\n";
  const WorkerFailure& culprit = report.the_culprit();
  const auto width = static_cast<size_t>(std::clamp(options.width, 20, 80));
  const std::string rule = std::string(width, '=') + "\n";
  std::string text = rule;
  text += coloured(options, "1;31", headline(report, culprit)) + "\n";
  text += who_line(report, culprit) + "\n";
  text += attempts_lines(report);
  if (!culprit.call.empty())
    text += clean_line("It was in " + culprit.call, kHeadlineCharacters) + "\n";
  if (!is_one_of(report.reason, {Reason::mismatch, Reason::hang}))
    text += hang_line(report, "Before the failure: ");
  if (!report.cause.remedy.empty()) {
    text += coloured(options, "33", "What to do: " + clean_line(report.cause.remedy)) + "\n";
  }
  const std::string where = on_host(report, culprit);
  const std::string others = part_of_others(report);
  const auto taken = static_cast<size_t>(std::ranges::count(others, '\n'));
  const size_t room = kStderrLines - std::min(kStderrLines / 2, taken);
  if (!culprit.summary_only) append_own_words(text, culprit, report.cause, room);
  text += others;
  append_root_cause(text, culprit, report.cause, options);
  if (!culprit.summary_only) append_logs(text, culprit, where);
  text +=
      others_text(report.failures, *report.culprit, report.stopped_elsewhere, report.world_size);
  if (report.others_untold > 0)
    text += fmt::format("{} more did not succeed\n", report.others_untold);
  return text + rule;
}

// Describes a hang and a failure before the job ended for another reason.
std::string earlier_lines(const JobReport& report) {
  std::string text = hang_line(report, "muster: before the stop: ");
  if (!report.culprit) return text;
  const WorkerFailure& culprit = report.the_culprit();
  text += clean_line(fmt::format("muster: before that, rank {}{} (pid {}) {}; {}", culprit.rank,
                                 on_host(report, culprit), pid_text(culprit), report.cause.sentence,
                                 failed_line(culprit)));
  return text + "\n";
}

std::string render_stopped(const JobReport& report) {
  const std::string by =
      report.stopped_by.empty() ? signal_name(report.stop_signal) : clean_line(report.stopped_by);
  if (report.attempts.empty()) {
    return fmt::format("muster: stopped by {} before any worker was started\n", by);
  }
  std::string tail;
  if (!report.killed_ranks.empty())
    tail = "; " + ranks_text(report.killed_ranks) +
           (!report.kill_requested ? " did not end within the grace period and had to be killed"
            : report.killed_ranks.size() == 1 ? " had not ended when a second signal killed it"
                                              : " had not ended when a second signal killed them");
  if (!report.failed_in_stop.empty())
    tail += fmt::format("; {} failed while muster stopped {}: {}", report.failed_in_stop.size(),
                        report.failed_in_stop.size() == 1 ? "it" : "them",
                        ends_text(report.failed_in_stop));
  if (tail.empty())
    tail = fmt::format("; all workers {}ended within the grace period",
                       report.nnodes > 1 ? "of this node " : "");
  return fmt::format("muster: stopped by {} after {}{}\n", by, duration_text(report.stop_took),
                     tail) +
         (report.tails_dir.empty() ? std::string()
                                   : "muster: the last lines of each rank are kept in " +
                                         clean_line(report.tails_dir) + "\n") +
         earlier_lines(report);
}

std::string stuck_text(const StuckProcess& process) {
  std::string text = fmt::format("  pid {} ({}", process.pid, clean_line(process.name));
  if (process.rank >= 0) text += fmt::format(", rank {}", process.rank);
  text += ") ";
  if (process.foreign_user) return text + fmt::format("runs as uid {}\n", *process.foreign_user);
  text += process.state == 'D' ? std::string("in uninterruptible sleep (state D)")
                               : fmt::format("in state {}", process.state);
  if (!process.wchan.empty()) text += " in the kernel's " + clean_line(process.wchan);
  return text + "\n";
}

std::string render_unkillable(const JobReport& report) {
  const size_t count = report.stuck.size();
  const bool one = count == 1;
  const auto is_foreign = [](const StuckProcess& process) {
    return process.foreign_user.has_value();
  };
  std::string text;
  if (count > 0 && std::ranges::all_of(report.stuck, is_foreign)) {
    text = fmt::format(
        "muster: {} as another user and could not be stopped; end {} as that user or as root:\n",
        counted(count, "process") + (one ? " runs" : " run"), one ? "it" : "them");
  } else {
    text = fmt::format(
        "muster: {} did not exit after SIGKILL and will remain until the kernel releases {}; "
        "check the disk, file server or GPU that {} for:\n",
        counted(count, "process"), one ? "it" : "them", one ? "it waits" : "they wait");
  }
  for (const StuckProcess& process : report.stuck)
    text += stuck_text(process);
  return text + earlier_lines(report);
}

}  // namespace

std::string render_end(const JobReport& report, const RenderOptions& options) {
  switch (report.end) {
    case JobEnd::success:
      return {};
    case JobEnd::failed:
      return render_failure(report, options);
    case JobEnd::stopped:
      return render_stopped(report);
    case JobEnd::spawn_failed:
    case JobEnd::round_failed:
      return "muster: " + clean_line(report.error.message, 2000) + "\n" + earlier_lines(report);
    case JobEnd::unkillable:
      return render_unkillable(report);
  }
  CHECK(false);
}

std::string render_restart(const WorkerFailure& culprit, const Cause& cause, int restarts_left,
                           int max_restarts, Duration delay) {
  const std::string when =
      delay > Duration{0} ? "restarting in " + duration_text(delay) : std::string("restarting");
  const std::string where =
      culprit.node_rank >= 0 ? " on " + clean_line(culprit.host) : std::string();
  return clean_line(
      fmt::format("rank {}{} {}; {}; {}, {} of {} restarts left", culprit.rank, where,
                  cause.sentence, failed_line(culprit), when, restarts_left, max_restarts),
      2000);
}

}  // namespace muster
