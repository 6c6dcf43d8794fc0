// What one node tells the job's host of its workers, and how the host has all of that judged.
#include <algorithm>
#include <csignal>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/report/failure_wire.h"
#include "agent/report/text.h"
#include "agent/report/wire_json.h"
#include "agent/report/worker_json.h"

namespace muster {
namespace {

using wire::Json;
using wire::Like;

constexpr int kEvidenceVersion = 2;
constexpr size_t kWorkersMax = 4096;
constexpr size_t kBlamedMax = 1024;
constexpr int64_t kSpanMax = int64_t{1} << 58;  // ns: 9 years.
// The errors of clocks are added up.
constexpr Duration kErrorMax = std::chrono::hours{24 * 366};

void instant(auto& a, const char* key, auto& at, Instant since) {
  auto span = std::clamp<Duration>(at - since, Duration{-kSpanMax}, Duration{kSpanMax});
  wire::nanoseconds(a, key, span, -kSpanMax, kSpanMax);
  if constexpr (wire::kReads<std::remove_cvref_t<decltype(a)>>) at = since + span;
}

void fields(auto& a, Like<WorkerSigns> auto& m, Instant since) {
  a.number("rank", m.rank, 0, wire::kCountMax);
  a.number("node_rank", m.node_rank, 0, wire::kCountMax);
  a.one_of("at_stop", m.at_stop, WorkerSigns::AtStop::ended);
  a.flag("by_stop", m.by_stop);
  a.flag("declared", m.declared);
  instant(a, "ended", m.ended, since);
  a.number("order", m.order, 0, wire::kCountMax);
  const auto moment = [since](auto& inner, auto& at) { instant(inner, "at", at, since); };
  a.maybe("raised", m.raised, moment);
  wire::nanoseconds(a, "raised_error", m.raised_error, 0, kSpanMax);
  a.maybe("active_until", m.active_until, moment);
  a.flag("presumed", m.presumed);
  a.maybe("blame", m.blame, [](auto& inner, auto& blame) {
    wire::numbers(inner, "ranks", blame.ranks, kBlamedMax);
    inner.flag("any_connection", blame.any_connection);
  });
}

Json evidence_json(const WorkerEvidence& worker, Instant since, size_t long_max) {
  constexpr size_t kTextMax = 400;
  Json json;
  wire::JsonWriter signs(kTextMax);
  fields(signs, worker.signs, since);
  json["signs"] = signs.take();
  json["ended"] = worker.signs.status.has_value();
  json["worker"] = wire::worker_json(worker.failure, kTextMax);
  json["cause"] = wire::cause_json(worker.cause, kTextMax);
  if (long_max > 0) json["words"] = wire::words_json(worker.failure, long_max, 1024);
  return json;
}

bool is_bystander(const WorkerEvidence& worker) {
  const WorkerSigns& signs = worker.signs;
  return !signs.declared && !signs.raised && (!signs.status || signs.by_stop);
}

// Who fits: all that failed, with words as long as there is room; then those that muster stopped.
Json node_json(const NodeEvidence& node, Instant since, size_t long_max) {
  Json json;
  json["version"] = kEvidenceVersion;
  json["host"] = wire::fitting_text(node.host, membership::kNameBytesMax);
  json["node_rank"] = node.node_rank;
  json["error"] = Json();
  if (node.error) {
    json["error"]["code"] = static_cast<int>(node.error->code);
    json["error"]["message"] = wire::fitting_text(node.error->message, membership::kTextBytesMax);
  }
  json["workers"] = Json::array();
  size_t room = membership::kDetailBytesMax - 2 * membership::kTextBytesMax;
  for (const bool bystanders : {false, true}) {
    for (const WorkerEvidence& worker : node.workers) {
      if (is_bystander(worker) != bystanders) continue;
      Json one = evidence_json(worker, since, bystanders ? 0 : long_max);
      const size_t bytes = wire::dump(one).size() + 1;
      if (bytes > room) continue;
      room -= bytes;
      json["workers"].push_back(std::move(one));
    }
  }
  return json;
}

WorkerEvidence read_worker_evidence(const Json& json, Instant since, std::string& wrong) {
  wire::JsonReader reader(json, wrong);
  WorkerEvidence worker;
  wire::JsonReader signs(reader.at("signs"), wrong);
  fields(signs, worker.signs, since);
  bool ended = false;
  reader.flag("ended", ended);
  worker.failure = wire::read_worker(reader.at("worker"), wrong);
  worker.cause = wire::read_cause(reader.at("cause"), wrong);
  if (reader.has("words")) wire::read_words(reader.at("words"), worker.failure, wrong);
  if (ended) worker.signs.status = worker.failure.status;
  return worker;
}

NodeEvidence read_node(const Json& json, Instant since, Duration clock_error, std::string& wrong) {
  wire::JsonReader reader(json, wrong);
  NodeEvidence node;
  int version = 0;
  reader.number("version", version, kEvidenceVersion, kEvidenceVersion);
  reader.text("host", node.host);
  reader.number("node_rank", node.node_rank, 0, wire::kCountMax);
  if (const Json& told = reader.at("error"); !told.is_null()) {
    wire::JsonReader error(told, wrong);
    int code = 0;
    error.number("code", code, 1, 255);
    node.error = Error{static_cast<ExitCode>(code), ""};
    error.text("message", node.error->message);
  }
  reader.each("workers", kWorkersMax, [&](const Json& one) {
    node.workers.push_back(read_worker_evidence(one, since, wrong));
    node.workers.back().signs.clock_error = std::clamp(clock_error, Duration{0}, kErrorMax);
  });
  return node;
}

// The status behind an exit code as a shell would show it, as far as that can be told.
ExitStatus status_in_short(int exit_code, std::string_view sentence) {
  const int code = std::clamp(exit_code, 1, 255);
  const int signal = code - 128;
  const bool killed = sentence.starts_with("killed by ") && signal > 0;
  return killed && signal <= SIGRTMAX ? ExitStatus::signaled(signal) : ExitStatus::exited(code);
}

WorkerEvidence evidence_in_short(const membership::Failure& failure,
                                 const membership::Testimony& node) {
  WorkerEvidence worker;
  WorkerFailure& told = worker.failure;
  told.rank = failure.rank;
  told.local_rank = failure.local_rank;
  told.host = node.host_name;
  told.node_rank = node.node_rank;
  told.status = status_in_short(failure.exit_code, failure.sentence);
  told.summary_only = true;
  const bool killed = told.status.kind == ExitStatus::Kind::signaled;
  worker.cause.kind = killed ? FailureClass::signal : FailureClass::user;
  worker.cause.sentence = failure.sentence.empty() ? describe(told.status) : failure.sentence;
  WorkerSigns& signs = worker.signs;
  signs.rank = failure.rank;
  signs.node_rank = node.node_rank;
  signs.status = told.status;
  signs.at_stop = WorkerSigns::AtStop::ended;
  signs.ended = failure.at;
  signs.clock_error = std::clamp(failure.at_error, Duration{0}, kErrorMax);
  return worker;
}

// A node may say what it likes of its own workers, of no others, and under its own name.
NodeEvidence evidence_of(const membership::Testimony& testimony) {
  NodeEvidence node;
  if (testimony.evidence) {
    const membership::Evidence& told = *testimony.evidence;
    Result<NodeEvidence> read = decode_evidence(told.detail, told.since, told.since_error);
    if (read) node = *std::move(read);
  }
  node.host = testimony.host_name;
  node.node_rank = testimony.node_rank;
  std::erase_if(node.workers, [&](const WorkerEvidence& worker) {
    const int local = worker.signs.rank - testimony.base_rank;
    return local < 0 || local >= testimony.workers || worker.failure.rank != worker.signs.rank;
  });
  for (WorkerEvidence& worker : node.workers) {
    worker.signs.node_rank = worker.failure.node_rank = testimony.node_rank;
    worker.failure.host = testimony.host_name;
  }
  if (!testimony.failure || node.error) return node;
  if (node.workers.empty())
    node.workers.push_back(evidence_in_short(*testimony.failure, testimony));
  return node;
}

std::vector<LostNode> lost_nodes(const std::vector<membership::Testimony>& testimonies) {
  std::vector<LostNode> lost;
  for (const membership::Testimony& node : testimonies) {
    if (!node.gone) continue;
    LostNode& one = lost.emplace_back();
    one.node_rank = node.node_rank;
    for (int rank = 0; rank < node.workers; ++rank)
      one.ranks.push_back(node.base_rank + rank);
    one.last_heard = node.last_heard;
    one.gone_by = node.gone_by;
  }
  std::ranges::sort(lost, {},
                    [](const LostNode& one) { return std::pair(one.last_heard, one.node_rank); });
  return lost;
}

// The first report in short, for where nothing else can be told.
membership::Verdict first_reported(const std::vector<membership::Testimony>& testimonies) {
  membership::Verdict verdict;
  const membership::Failure* first = nullptr;
  for (const membership::Testimony& node : testimonies) {
    if (!node.failure || (first != nullptr && first->at <= node.failure->at)) continue;
    first = &*node.failure;
    verdict = {first->rank,
               first->local_rank,
               node.node_rank,
               node.host_name,
               first->exit_code,
               first->sentence,
               ""};
  }
  return verdict;
}

}  // namespace

std::string encode_evidence(const NodeEvidence& node, Instant since) {
  for (size_t long_max = wire::kLongTextBytes; long_max >= 128; long_max /= 2) {
    std::string bytes = wire::dump(node_json(node, since, long_max));
    if (bytes.size() <= membership::kDetailBytesMax) return bytes;
  }
  return wire::dump(node_json(node, since, 0));
}

std::string evidence_file(const NodeEvidence& node, Instant since) {
  return fmt::format("{{\"since_ns\": {}, \"node\": {}}}\n", since.time_since_epoch().count(),
                     encode_evidence(node, since));
}

Result<NodeEvidence> decode_evidence(std::string_view bytes, Instant since, Duration clock_error) {
  const Json json = Json::parse(bytes.begin(), bytes.end(), nullptr, /*allow_exceptions=*/false);
  std::string wrong = json.is_discarded() ? "it is not JSON" : "";
  NodeEvidence node;
  if (wrong.empty()) node = read_node(json, since, clock_error, wrong);
  if (wrong.empty()) return node;
  return fail(ExitCode::rendezvous,
              fmt::format("cannot read what a node told of its workers: {}", wrong));
}

membership::Judgement judge_testimonies(const std::vector<membership::Testimony>& testimonies) {
  std::vector<NodeEvidence> nodes;
  for (const membership::Testimony& testimony : testimonies)
    nodes.push_back(evidence_of(testimony));
  JudgedAttempt judged = judge_attempt(nodes, lost_nodes(testimonies));
  for (const membership::Testimony& node : testimonies) {
    if (node.gone || node.evidence || node.failure) continue;
    for (int rank = 0; rank < node.workers; ++rank)
      judged.stopped_elsewhere.push_back(node.base_rank + rank);
  }
  membership::Judgement judgement;
  judgement.by_departure = judged.lost_node.has_value() && !judged.error;
  judgement.verdict = first_reported(testimonies);
  membership::Verdict& verdict = judgement.verdict;
  if (judged.error) {
    verdict.node_rank = judged.error_node_rank;
    verdict.host_name = judged.error_host;
    verdict.exit_code = static_cast<int>(judged.error->code);
  } else if (judged.culprit) {
    const WorkerFailure& culprit = judged.failures[*judged.culprit];
    verdict.rank = culprit.rank;
    verdict.local_rank = culprit.local_rank;
    verdict.node_rank = culprit.node_rank;
    verdict.host_name = culprit.host;
    JobReport report;
    report.end = JobEnd::failed;
    apply_judged(report, judged);
    verdict.exit_code = exit_code_of(report, ExitCodePolicy::culprit);
  } else {
    return judgement;
  }
  verdict.sentence = verdict_sentence(judged);
  verdict.detail = encode_verdict(judged);
  judgement.brief = encode_verdict(judged, VerdictLength::line);
  return judgement;
}

JudgedAttempt verdict_in_short(const membership::Verdict& verdict) {
  membership::Testimony node;
  node.host_name = verdict.host_name;
  node.node_rank = verdict.node_rank;
  const WorkerEvidence worker = evidence_in_short(
      {verdict.rank, verdict.local_rank, verdict.exit_code, false, verdict.sentence, {}, {}}, node);
  JudgedAttempt judged;
  judged.failures = {worker.failure};
  judged.failures[0].part = Part::culprit;
  judged.failures[0].sentence = worker.cause.sentence;
  judged.culprit = 0;
  judged.cause = worker.cause;
  return judged;
}

}  // namespace muster
