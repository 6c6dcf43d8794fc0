#include "agent/report/hang_news.h"

#include <cmath>

#include "agent/report/wire_json.h"

namespace muster {
namespace {

constexpr size_t kNewsRanksMax = 512;
constexpr size_t kNewsTextMax = 512;
constexpr size_t kSaidMax = 4096;

void fields(auto& a, Like<HangReport> auto& m) {
  wire::numbers(a, "ranks", m.ranks, kNewsRanksMax);
  a.text("class", m.what);
  a.text("by", m.by);
  a.text("group", m.group);
  a.text("operation", m.operation);
  a.number("ordinal", m.ordinal, 0, wire::kTimeMax);
  wire::numbers(a, "waiting", m.waiting, kNewsRanksMax);
  int64_t milliseconds = std::llround(m.seconds * 1e3);
  a.number("milliseconds", milliseconds, 0, wire::kBigMax);
  if constexpr (wire::kReads<decltype(a)>) m.seconds = static_cast<double>(milliseconds) / 1e3;
  a.text("confidence", m.confidence);
  a.text("line", m.text);
  a.flag("is_mismatch", m.is_mismatch);
}

}  // namespace

std::string encode_hang_news(const HangNews& news) {
  wire::JsonWriter writer(kNewsTextMax);
  writer.one_of("kind", news.kind, JobEventKind::job_ended);
  writer.number("number", news.number, 0, wire::kTimeMax);
  writer.object("report", news.report, [](auto& inner, auto& report) { fields(inner, report); });
  writer.put("text", wire::fitting_text(news.text, kSaidMax));
  return wire::dump(writer.take());
}

std::optional<HangNews> decode_hang_news(std::string_view bytes) {
  const wire::Json json =
      wire::Json::parse(bytes.begin(), bytes.end(), nullptr, /*allow_exceptions=*/false);
  if (bytes.size() > kHangNewsBytesMax || json.is_discarded()) return std::nullopt;
  std::string wrong;
  wire::JsonReader reader(json, wrong);
  HangNews news;
  reader.one_of("kind", news.kind, JobEventKind::job_ended);
  reader.number("number", news.number, 0, wire::kTimeMax);
  reader.object("report", news.report, [](auto& inner, auto& report) { fields(inner, report); });
  reader.text("text", news.text);
  const bool is_ours = news.kind == JobEventKind::note || news.kind == JobEventKind::waiting ||
                       news.kind == JobEventKind::hang || news.kind == JobEventKind::mismatch ||
                       news.kind == JobEventKind::withdrawn;
  return wrong.empty() && is_ours ? std::optional(std::move(news)) : std::nullopt;
}

}  // namespace muster
