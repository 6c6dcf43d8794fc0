#include "agent/report/failure_wire.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/report/text.h"
#include "agent/report/wire_json.h"
#include "agent/report/worker_json.h"

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

// How long the texts of a verdict may be.
struct Room {
  size_t long_max = wire::kLongTextBytes;  // For the culprit's words; the others get a quarter.
  size_t text_max = wire::kLongTextBytes / 4;
  bool others = true;
};

Json failure_with_words_json(const JudgedAttempt& judged, size_t i, const Room& room) {
  const WorkerFailure& failure = judged.failures[i];
  Json json = wire::worker_json(failure, room.text_max);
  const size_t long_max = judged.culprit == i ? room.long_max : room.long_max / 4;
  json["words"] = wire::words_json(failure, long_max, room.text_max);
  return json;
}

Json index_json(const std::optional<size_t>& index, const std::vector<size_t>& kept) {
  const auto found = index ? std::ranges::find(kept, *index) : kept.end();
  return found == kept.end() ? Json() : Json(found - kept.begin());
}

// Ranks of a node are consecutive, so they form few ranges: first, last, first, last ...
std::vector<int> pairs_of(const std::vector<int>& ranks) {
  std::vector<int> ranges;
  for (const int rank : ranks) {
    if (!ranges.empty() && ranges.back() + 1 == rank) {
      ranges.back() = rank;
    } else {
      ranges.insert(ranges.end(), {rank, rank});
    }
  }
  return ranges;
}

std::vector<int> ranks_of(const std::vector<int>& ranges, std::string& wrong) {
  std::vector<int> ranks;
  for (size_t i = 0; i + 1 < ranges.size(); i += 2) {
    const bool good =
        ranges[i] <= ranges[i + 1] && (ranks.empty() || ranks.back() < ranges[i]) &&
        ranks.size() + static_cast<size_t>(ranges[i + 1] - ranges[i]) < kStoppedRanksMax;
    if (!good && wrong.empty()) wrong = "stopped_elsewhere";
    if (!wrong.empty()) return {};
    for (int rank = ranges[i]; rank <= ranges[i + 1]; ++rank)
      ranks.push_back(rank);
  }
  return ranks;
}

// With words: the culprit, its witness, and the first few that may also have failed first.
void put_failures(Json& json, const JudgedAttempt& judged, const Room& room) {
  constexpr int kSimultaneousMax = 3;
  json["failures"] = Json::array();
  std::vector<size_t> kept;
  size_t bytes = 0;
  int simultaneous = 0;
  int untold = judged.others_untold;
  for (size_t i = 0; i < judged.failures.size(); ++i) {
    const bool has_words =
        judged.culprit == i || judged.witness == i ||
        (judged.failures[i].part == Part::simultaneous && simultaneous++ < kSimultaneousMax);
    Json one = has_words ? failure_with_words_json(judged, i, room)
                         : wire::worker_json(judged.failures[i], kOtherTextBytesMax);
    if (!has_words) bytes += wire::dump(one).size() + 1;
    const bool fits =
        has_words ? room.others || judged.culprit == i : room.others && bytes <= kOthersBytesMax;
    if (fits) {
      kept.push_back(i);
      json["failures"].push_back(std::move(one));
    } else {
      ++untold;
    }
  }
  json["culprit"] = index_json(judged.culprit, kept);
  json["witness"] = index_json(judged.witness, kept);
  json["others_untold"] = untold;
  wire::JsonWriter writer(0);
  wire::numbers(writer, "ranges", pairs_of(judged.stopped_elsewhere), room.others ? kRangesMax : 0);
  json["stopped_elsewhere"] = writer.take();
}

Json verdict_json(const JudgedAttempt& judged, const Room& room) {
  Json json;
  json["version"] = kVerdictVersion;
  json["attempt"] = judged.attempt;
  json["reason"] = static_cast<int>(judged.reason);
  json["lost_node"] = judged.lost_node ? Json(*judged.lost_node) : Json();
  json["error"] = Json();
  if (judged.error) {
    json["error"]["code"] = static_cast<int>(judged.error->code);
    json["error"]["message"] = wire::fitting_text(judged.error->message, room.text_max);
    json["error"]["host"] = wire::fitting_text(judged.error_host, room.text_max);
    json["error"]["node_rank"] = judged.error_node_rank;
  }
  json["cause"] = wire::cause_json(judged.cause, room.text_max);
  put_failures(json, judged, room);
  return json;
}

void read_error(const Json& json, JudgedAttempt& judged, std::string& wrong) {
  if (json.is_null()) return;
  wire::JsonReader reader(json, wrong);
  int code = 0;
  reader.number("code", code, 1, 255);
  judged.error = Error{static_cast<ExitCode>(code), ""};
  reader.text("message", judged.error->message);
  reader.text("host", judged.error_host);
  reader.number("node_rank", judged.error_node_rank, 0, wire::kCountMax);
}

std::optional<size_t> read_index(wire::JsonReader& reader, const char* key, size_t count) {
  if (reader.at(key).is_null()) return std::nullopt;
  size_t index = 0;
  reader.number(key, index, 0, static_cast<int64_t>(count) - 1);
  return index;
}

JudgedAttempt read_verdict(const Json& json, std::string& wrong) {
  wire::JsonReader reader(json, wrong);
  JudgedAttempt judged;
  int version = 0;
  reader.number("version", version, kVerdictVersion, kVerdictVersion);
  reader.number("attempt", judged.attempt, 0, wire::kCountMax);
  reader.one_of("reason", judged.reason, Reason::first_victim);
  if (!reader.at("lost_node").is_null())
    reader.number("lost_node", judged.lost_node.emplace(), 0, wire::kCountMax);
  read_error(reader.at("error"), judged, wrong);
  judged.cause = wire::read_cause(reader.at("cause"), wrong);
  reader.each("failures", kFailuresMax, [&](const Json& one) {
    WorkerFailure failure = wire::read_worker(one, wrong);
    if (one.is_object() && one.contains("words"))
      wire::read_words(one.find("words").value(), failure, wrong);
    judged.failures.push_back(std::move(failure));
  });
  judged.culprit = read_index(reader, "culprit", judged.failures.size());
  judged.witness = read_index(reader, "witness", judged.failures.size());
  reader.number("others_untold", judged.others_untold, 0, wire::kCountMax);
  std::vector<int> ranges;
  reader.object("stopped_elsewhere", ranges,
                [](auto& inner, auto& list) { wire::numbers(inner, "ranges", list, kRangesMax); });
  judged.stopped_elsewhere = ranks_of(ranges, wrong);
  return judged;
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
  const Json json = Json::parse(bytes.begin(), bytes.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return refuse("it is not JSON");
  std::string wrong;
  JudgedAttempt judged = read_verdict(json, wrong);
  if (!wrong.empty()) return refuse(fmt::format("field \"{}\" is missing or wrong", wrong));
  return judged;
}

std::string verdict_sentence(const JudgedAttempt& judged) {
  if (judged.error) return clean_line(judged.error->message);
  return judged.culprit ? clean_line(judged.cause.sentence) : "no worker's exit was observed";
}

}  // namespace muster
