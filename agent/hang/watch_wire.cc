#include "agent/hang/watch_wire.h"

#include <algorithm>

#include "agent/report/text.h"
#include "rendezvous/net/field_codec.h"

namespace muster::hang {
namespace {

constexpr size_t kRunsMax = 1024;
constexpr size_t kRunBytes = 2 * sizeof(int);
constexpr int kRankMax = 1 << 30;

}  // namespace

std::string encode_ranks(const std::vector<int>& ranks) {
  std::string bytes;
  FieldWriter writer(bytes);
  for (const auto& [first, last] : ranges_of(ranks)) {
    if (bytes.size() == kRunsMax * kRunBytes) break;
    writer.integer(first);
    writer.integer(last);
  }
  return bytes;
}

std::optional<std::vector<int>> decode_ranks(std::string_view bytes, int first, int last) {
  std::vector<int> ranks;
  if (bytes.size() % kRunBytes != 0 || bytes.size() > kRunsMax * kRunBytes) return std::nullopt;
  for (; !bytes.empty(); bytes.remove_prefix(kRunBytes)) {
    FieldReader reader(bytes.substr(0, kRunBytes));
    int from = 0;
    int to = 0;
    reader.number(from, 0, kRankMax);
    reader.number(to, 0, kRankMax);
    if (reader.end() != nullptr || to < from) return std::nullopt;
    for (int rank = std::max(from, first); rank <= std::min(to, last); ++rank)
      ranks.push_back(rank);
  }
  return ranks;
}

std::string encode_news(const NumberedNews& news) {
  std::string bytes;
  FieldWriter writer(bytes);
  writer.integer(news.number);
  writer.integer(news.oldest);
  bytes += news.news;
  return bytes;
}

std::optional<NumberedNews> decode_news(std::string_view bytes) {
  NumberedNews news;
  constexpr size_t kHeadBytes = sizeof(news.number) + sizeof(news.oldest);
  if (bytes.size() < kHeadBytes) return std::nullopt;
  FieldReader reader(bytes);
  reader.integer(news.number);
  reader.integer(news.oldest);
  news.news = bytes.substr(kHeadBytes);
  return news;
}

}  // namespace muster::hang
