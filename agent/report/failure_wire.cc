#include "agent/report/failure_wire.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/report/result_json.h"
#include "agent/report/text.h"
#include "agent/report/wire_json.h"
#include "agent/report/worker_json.h"
#include "rendezvous/base/signal_name.h"

namespace muster {
namespace {

using wire::Json;

constexpr int kVerdictVersion = 2;
constexpr size_t kOthersBytesMax = 16384;   // All failures without words together.
constexpr size_t kOtherTextBytesMax = 200;  // Each text of one of them.
constexpr size_t kLineTextBytesMax = 1024;
constexpr size_t kFailuresMax = 1 << 16;
constexpr size_t kRangesMax = 2048;
constexpr size_t kStoppedRanksMax = 1 << 20;

// The maximal lengths of a verdict's texts.
struct Room {
  size_t long_max = wire::kLongTextBytes;  // The culprit's words'; the others get a quarter.
  size_t text_max = wire::kLongTextBytes / 4;
  bool others = true;
};

Json failure_with_words_json(const JudgedAttempt& judged, size_t i, const Room& room) {
  const WorkerFailure& failure = judged.failures[i];
  Json json = wire::json_of(failure, room.text_max);
  const size_t long_max = judged.culprit == i ? room.long_max : room.long_max / 4;
  json["words"] = wire::words_json(failure, long_max, room.text_max);
  return json;
}

// Ranks of a node are consecutive, so they form few ranges: first, last, first, last ...
std::vector<int> pairs_of(const std::vector<int>& ranks) {
  std::vector<int> pairs;
  for (const auto& [first, last] : ranges_of(ranks))
    pairs.insert(pairs.end(), {first, last});
  return pairs;
}

std::optional<std::vector<int>> ranks_of(const std::vector<int>& ranges) {
  std::vector<int> ranks;
  for (size_t i = 0; i + 1 < ranges.size(); i += 2) {
    const bool good =
        ranges[i] <= ranges[i + 1] && (ranks.empty() || ranks.back() < ranges[i]) &&
        ranks.size() + static_cast<size_t>(ranges[i + 1] - ranges[i]) < kStoppedRanksMax;
    if (!good) return std::nullopt;
    for (int rank = ranges[i]; rank <= ranges[i + 1]; ++rank)
      ranks.push_back(rank);
  }
  return ranks;
}

void head_fields(auto& a, Like<JudgedAttempt> auto& m) {
  int version = kVerdictVersion;
  a.number("version", version, kVerdictVersion, kVerdictVersion);
  a.number("attempt", m.attempt, 0, wire::kCountMax);
  wire::one_of(a, "reason", m.reason, Reason::hang);
  a.number("lost_node", m.lost_node, 0, wire::kCountMax);
  a("error", m.error, [&m](auto& inner, auto& error) {
    wire::fields(inner, error);
    inner("host", m.error_host);
    inner.number("node_rank", m.error_node_rank, 0, wire::kCountMax);
  });
  a("cause", m.cause);
}

void tail_fields(auto& a, auto& m, size_t failures) {
  const int64_t last = static_cast<int64_t>(failures) - 1;
  a.number("culprit", m.culprit, 0, last);
  a.number("witness", m.witness, 0, last);
  a.number("others_untold", m.others_untold, 0, wire::kCountMax);
  std::vector<int> ranges = pairs_of(m.stopped_elsewhere);
  a("stopped_elsewhere", m,
    [&](auto& inner, auto&) { inner.numbers("ranges", ranges, kRangesMax); });
  if constexpr (wire::kReads<decltype(a)>) {
    const std::optional<std::vector<int>> ranks = ranks_of(ranges);
    if (!ranks) return a.miss("stopped_elsewhere", "a list of ranges");
    m.stopped_elsewhere = *ranks;
  }
}

// Lists the failures that fit, and sets the culprit's and the witness's index in `told`. The
// culprit, its witness, and the first few that may also have failed first come with their words.
Json failures_json(const JudgedAttempt& judged, const Room& room, AttemptFailures& told) {
  constexpr int kSimultaneousMax = 3;
  Json list = Json::array();
  size_t bytes = 0;
  int simultaneous = 0;
  for (size_t i = 0; i < judged.failures.size(); ++i) {
    const bool has_words =
        judged.culprit == i || judged.witness == i ||
        (judged.failures[i].part == Part::simultaneous && simultaneous++ < kSimultaneousMax);
    Json one = has_words ? failure_with_words_json(judged, i, room)
                         : wire::json_of(judged.failures[i], kOtherTextBytesMax);
    if (!has_words) bytes += wire::dump(one).size() + 1;
    const bool fits =
        has_words ? room.others || judged.culprit == i : room.others && bytes <= kOthersBytesMax;
    if (!fits) {
      ++told.others_untold;
      continue;
    }
    if (judged.culprit == i) told.culprit = list.size();
    if (judged.witness == i) told.witness = list.size();
    list.push_back(std::move(one));
  }
  return list;
}

Json verdict_json(const JudgedAttempt& judged, const Room& room) {
  wire::JsonWriter writer(room.text_max);
  head_fields(writer, judged);
  AttemptFailures told;
  told.others_untold = judged.others_untold;
  if (room.others) told.stopped_elsewhere = judged.stopped_elsewhere;
  writer.put("failures", failures_json(judged, room, told));
  tail_fields(writer, told, judged.failures.size());
  return writer.take();
}

JudgedAttempt read_verdict(const Json& json, std::string& wrong) {
  wire::JsonReader reader(json, wrong);
  JudgedAttempt judged;
  head_fields(reader, judged);
  reader.each("failures", kFailuresMax, [&](const Json& one) {
    WorkerFailure failure = wire::read<WorkerFailure>(one, wrong);
    if (one.is_object() && one.contains("words"))
      wire::read_words(one.find("words").value(), failure, wrong);
    judged.failures.push_back(std::move(failure));
  });
  tail_fields(reader, judged, judged.failures.size());
  return judged;
}

// An End comes from the network; its exit code must not read as success.
ExitCode failing_code(int code) {
  return static_cast<ExitCode>(std::clamp(code, 1, 255));
}

void end_with_error(JobReport& report, const membership::End& end) {
  report.end = JobEnd::round_failed;
  report.error = {failing_code(end.exit_code), end.text};
  report.lost_node = end.why == membership::EndWhy::lost;
}

void end_as_failed(JobReport& report, const membership::End& end) {
  if (!end.verdict) return end_with_error(report, end);
  report.end = JobEnd::failed;
  Result<JudgedAttempt> told = decode_verdict(end.verdict->detail);
  JudgedAttempt judged = told ? *std::move(told) : verdict_in_short(*end.verdict);
  if (!told) judged.failures[0].program = report.program;
  apply_judged(report, judged);
  if (!judged.error) return;
  report.end = JobEnd::spawn_failed;
  report.error = *judged.error;
  report.error.message.insert(0, node_text(judged.error_host, judged.error_node_rank) + ": ");
}

void end_as_stopped(JobReport& report, const membership::End& end) {
  // The job's host may have appended to the name, to make it unique.
  const bool here = end.host_name.starts_with(report.host) && end.node_rank == report.node_rank;
  report.end = JobEnd::stopped;
  report.stop_signal = std::clamp(end.signal, 1, SIGRTMAX);
  report.stopped_by =
      here ? std::string()
           : signal_name(report.stop_signal) + " on " + node_text(end.host_name, end.node_rank);
  // A failure before the stop.
  if (!end.verdict) return;
  const Result<JudgedAttempt> told = decode_verdict(end.verdict->detail);
  if (told && told->culprit) apply_judged(report, *told);
}

// Returns why the last attempt ended, which this node alone could not know.
std::string attempt_end_text(const JobReport& report, const membership::End& end) {
  if (report.end != JobEnd::failed || !report.culprit) {
    return end.text.empty() ? outcome_name(report.end) : clean_line(end.text);
  }
  return fmt::format("rank {} on {} {}", report.the_culprit().rank,
                     clean_line(report.the_culprit().host), clean_line(report.cause.sentence));
}

}  // namespace

std::string encode_verdict(const JudgedAttempt& judged, VerdictLength length) {
  if (length == VerdictLength::line)
    return wire::dump(verdict_json(judged, {0, kLineTextBytesMax, false}));
  // JSON escapes may turn one byte into six; even then the smallest of these sizes fits.
  for (size_t long_max = wire::kLongTextBytes; long_max >= 128; long_max /= 2) {
    std::string detail = wire::dump(verdict_json(judged, {long_max, long_max / 4, true}));
    if (detail.size() <= kVerdictBytesMax) return detail;
  }
  return wire::dump(verdict_json(judged, {128, 32, false}));
}

Result<JudgedAttempt> decode_verdict(std::string_view bytes) {
  const auto refuse = [](std::string_view why) {
    return fail(ExitCode::rendezvous,
                fmt::format("cannot decode the failure report from the job's host: {}; is the same "
                            "version of muster installed on all nodes?",
                            why));
  };
  if (bytes.empty()) return refuse("it is empty");
  if (bytes.size() > kVerdictBytesMax) return refuse("it is too long");
  std::string wrong;
  JudgedAttempt judged = read_verdict(wire::parse(bytes), wrong);
  if (!wrong.empty()) return refuse(wrong);
  return judged;
}

std::string verdict_sentence(const JudgedAttempt& judged) {
  if (judged.error) return clean_line(judged.error->message);
  return judged.culprit ? clean_line(judged.cause.sentence) : "no worker's exit was observed";
}

void apply_end(JobReport& report, const membership::End& end) {
  const JobEnd own_end = report.end;
  report.error = {};
  switch (end.why) {
    case membership::EndWhy::success:
      report.end = JobEnd::success;
      break;
    case membership::EndWhy::failed:
      end_as_failed(report, end);
      break;
    case membership::EndWhy::stopped:
      end_as_stopped(report, end);
      break;
    case membership::EndWhy::lost:
    case membership::EndWhy::timeout:
      end_with_error(report, end);
      break;
  }
  if (!report.attempts.empty() && report.attempts.back().by_outcome) {
    AttemptRecord& last = report.attempts.back();
    last.why_ended = attempt_end_text(report, end);
    if (report.end == JobEnd::failed && report.culprit) last.culprit = attempt_culprit(report);
  }
  if (own_end == JobEnd::unkillable) report.end = JobEnd::unkillable;
  report.restarts_used = end.restarts;
  report.membership_changes = end.changes;
}

}  // namespace muster
