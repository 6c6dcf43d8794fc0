// Encodes a node's report on its workers for the job's host, which decodes and judges all reports.
#include <algorithm>
#include <csignal>
#include <numeric>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/report/failure_wire.h"
#include "agent/report/wire_json.h"
#include "agent/report/worker_json.h"

namespace muster {
namespace {

using wire::Json;

constexpr int kEvidenceVersion = 4;
constexpr size_t kWorkersMax = 4096;
constexpr size_t kBlamedMax = 1024;
constexpr int64_t kSpanMax = int64_t{1} << 58;  // ns: 9 years.

void instant(auto& a, const char* key, auto& at, Instant since) {
  Duration span = at - since;
  a.number(key, span, -kSpanMax, kSpanMax);
  if constexpr (wire::kReads<decltype(a)>) at = since + span;
}

void sign_fields(auto& a, Like<WorkerSigns> auto& m, Instant since) {
  a.number("rank", m.rank, 0, wire::kCountMax);
  a.number("node_rank", m.node_rank, 0, wire::kCountMax);
  wire::one_of(a, "at_stop", m.at_stop, AtStop::ended);
  a("by_stop", m.by_stop);
  a("declared", m.declared);
  a.if_any("lost_console", m.lost_console);
  instant(a, "ended", m.ended, since);
  a.number("order", m.order, 0, wire::kCountMax);
  const auto moment = [since](auto& inner, auto& at) { instant(inner, "at", at, since); };
  a("raised", m.raised, moment);
  a.number("raised_error", m.raised_error, 0, kSpanMax);
  a("active_until", m.active_until, moment);
  a("presumed", m.presumed);
  a.if_any("told_by_library", m.told_by_library, moment);
  a.if_any("left", m.left, moment);
  a("blame", m.blame, [](auto& inner, auto& blame) {
    inner.numbers("ranks", blame.ranks, kBlamedMax);
    inner("any_connection", blame.any_connection);
    inner.if_any("is_hearsay", blame.is_hearsay);
    wire::one_of(inner, "about", blame.about, Blame::About::mismatch);
  });
}

// The fields of a worker that is reported by its signs alone.
void end_fields(auto& a, Like<WorkerFailure> auto& m) {
  int code = m.status.signed_code();
  a.number("code", code, -SIGRTMAX, 255);
  a.number("attempt", m.attempt, 0, wire::kCountMax);
  if constexpr (wire::kReads<decltype(a)>) m.status = ExitStatus::from_signed_code(code);
}

void culprit_fields(auto& a, Like<DetectedCulprit> auto& m, Instant since) {
  a.number("rank", m.rank, 0, wire::kCountMax);
  a("is_mismatch", m.is_mismatch);
  a("sentence", m.sentence);
  a("remedy", m.remedy);
  a.if_any("failed", m.failed, [since](auto& inner, auto& at) { instant(inner, "at", at, since); });
  if (a.has("waiting", !m.waiting.empty())) {
    a("waiting", m,
      [](auto& inner, auto& one) { inner.numbers("ranks", one.waiting, kBlamedMax); });
  }
}

void node_fields(auto& a, Like<NodeEvidence> auto& m, Instant since) {
  int version = kEvidenceVersion;
  a.number("version", version, kEvidenceVersion, kEvidenceVersion);
  a("host", m.host);
  a.number("node_rank", m.node_rank, 0, wire::kCountMax);
  a("error", m.error);
  a.if_any("detected", m.detected,
           [since](auto& inner, auto& one) { culprit_fields(inner, one, since); });
  a.if_any("store_full", m.store_full, [](auto& inner, auto& line) { inner("line", line); });
}

Json signs_json(const WorkerEvidence& worker, Instant since) {
  wire::JsonWriter writer(0);
  writer("signs", worker.signs,
         [since](auto& inner, auto& signs) { sign_fields(inner, signs, since); });
  writer("ended", worker.signs.status.has_value());
  end_fields(writer, worker.failure);
  return writer.take();
}

// Adds the facts about the worker and the cause of its end.
Json facts_json(const WorkerEvidence& worker, Instant since) {
  constexpr size_t kTextMax = 400;
  Json json = signs_json(worker, since);
  json["worker"] = wire::json_of(worker.failure, kTextMax);
  json["cause"] = wire::json_of(worker.cause, kTextMax);
  return json;
}

// Orders likely culprits first, as far as their own node knows.
std::vector<size_t> by_likelihood(const std::vector<WorkerEvidence>& workers) {
  std::vector<WorkerSigns> signs;
  for (const WorkerEvidence& worker : workers)
    signs.push_back(worker.signs);
  const AttemptVerdict verdict = judge(signs);
  std::vector<size_t> order(workers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) {
    const Part part = verdict.parts[i];
    const Instant began = signs[i].raised.value_or(signs[i].ended);
    const bool bystander = part == Part::bystander;
    return std::tuple(bystander, bystander && signs[i].by_stop, part, began, signs[i].order, i);
  });
  return order;
}

// Workers in their original order, each with as much detail as fits.
class FittedWorkers {
 public:
  FittedWorkers(size_t count, size_t room) : workers_(count), bytes_(count), room_(room) {}

  void add_room(size_t bytes) { room_ += bytes; }

  bool put(size_t worker, Json json) {
    const size_t bytes = wire::dump(json).size() + 1;
    if (bytes > room_ + bytes_[worker]) return false;
    room_ = room_ + bytes_[worker] - bytes;
    bytes_[worker] = bytes;
    workers_[worker] = std::move(json);
    return true;
  }

  Json take() {
    Json all = Json::array();
    for (Json& worker : workers_) {
      if (!worker.is_null()) all.push_back(std::move(worker));
    }
    return all;
  }

 private:
  std::vector<Json> workers_;
  std::vector<size_t> bytes_;
  size_t room_;
};

// Fits in the signs of all workers, then facts, then the words of those that muster did not stop, a
// likely culprit's in full before the next one's. An eighth of the room is reserved for facts and
// another for words, even with hundreds of workers.
Json workers_json(const std::vector<WorkerEvidence>& workers, Instant since, size_t room) {
  const size_t eighth = room / 8;
  const std::vector<size_t> order = by_likelihood(workers);
  FittedWorkers fitted(workers.size(), room - 2 * eighth);
  std::vector<size_t> told;
  for (const size_t i : order) {
    if (fitted.put(i, signs_json(workers[i], since))) told.push_back(i);
  }
  fitted.add_room(eighth);
  std::erase_if(told, [&](size_t i) { return !fitted.put(i, facts_json(workers[i], since)); });
  fitted.add_room(eighth);
  for (const size_t i : told) {
    if (!has_something_to_tell(workers[i].signs)) continue;
    Json json = facts_json(workers[i], since);
    for (size_t long_max = wire::kLongTextBytes; long_max >= 128; long_max /= 2) {
      json["words"] = wire::words_json(workers[i].failure, long_max, 1024);
      if (fitted.put(i, json)) break;
    }
  }
  return fitted.take();
}

Json node_json(const NodeEvidence& node, Instant since) {
  wire::JsonWriter writer(membership::kTextBytesMax);
  node_fields(writer, node, since);
  Json json = writer.take();
  json["workers"] = Json::array();
  const size_t head = wire::dump(json).size();
  const size_t room = membership::kDetailBytesMax - std::min(head, membership::kDetailBytesMax);
  json["workers"] = workers_json(node.workers, since, room);
  return json;
}

WorkerEvidence read_worker_evidence(const Json& json, Instant since, std::string& wrong) {
  wire::JsonReader reader(json, wrong);
  WorkerEvidence worker;
  reader("signs", worker.signs,
         [since](auto& inner, auto& signs) { sign_fields(inner, signs, since); });
  bool ended = false;
  reader("ended", ended);
  if (reader.has("worker")) {
    reader("worker", worker.failure);
    reader("cause", worker.cause);
  } else {
    end_fields(reader, worker.failure);
    worker.failure.rank = worker.signs.rank;
    worker.failure.node_rank = worker.signs.node_rank;
    summarize(worker);
  }
  if (reader.has("words")) wire::read_words(*reader.find("words"), worker.failure, wrong);
  if (ended) worker.signs.status = worker.failure.status;
  return worker;
}

NodeEvidence read_node(const Json& json, Instant since, Duration clock_error, std::string& wrong) {
  wire::JsonReader reader(json, wrong);
  NodeEvidence node;
  node_fields(reader, node, since);
  reader.each("workers", kWorkersMax, [&](const Json& one) {
    node.workers.push_back(read_worker_evidence(one, since, wrong));
    node.workers.back().signs.clock_error = std::clamp(clock_error, Duration{0}, kClockErrorMax);
  });
  return node;
}

}  // namespace

std::string encode_evidence(const NodeEvidence& node, Instant since) {
  return wire::dump(node_json(node, since));
}

std::string evidence_file(const NodeEvidence& node, Instant since) {
  return fmt::format("{{\"since_ns\": {}, \"node\": {}}}\n", since.time_since_epoch().count(),
                     encode_evidence(node, since));
}

Result<NodeEvidence> decode_evidence(std::string_view bytes, Instant since, Duration clock_error) {
  std::string wrong;
  NodeEvidence node = read_node(wire::parse(bytes), since, clock_error, wrong);
  if (wrong.empty()) return node;
  return fail(ExitCode::rendezvous,
              fmt::format("cannot decode a node's report on its workers: {}", wrong));
}

}  // namespace muster
