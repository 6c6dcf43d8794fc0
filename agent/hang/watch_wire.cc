#include "agent/hang/watch_wire.h"

#include <algorithm>

#include "agent/report/text.h"
#include "rendezvous/net/field_codec.h"

namespace muster::hang {
namespace {

constexpr size_t kRunsMax = 1024;
constexpr size_t kRunBytes = 2 * sizeof(int);
constexpr int kRankMax = 1 << 30;
constexpr size_t kKeyBytesShown = 256;
constexpr size_t kSiblingsOfKey = size_t{4} * AwaitedKeys::kSiblingsMax;

void walk_client(auto& a, Like<KeyClient> auto& client) {
  a.integer(client.pid);
  a.number(client.node_rank, -1, kRankMax);
}

void walk_wait(auto& a, Like<AwaitedKeys> auto& wait) {
  a.list(wait.keys, AwaitedKeys::kKeysMax, [&](auto& key) {
    a.text(key.name, kKeyBytesShown);
    a.list(key.siblings, kSiblingsOfKey, [&](auto& sibling) {
      a.integer(sibling.place);
      a.number(sibling.awaited, 0, kRankMax);
      a.number(sibling.number, 0, kRankMax);
      walk_client(a, sibling.creator);
    });
  });
  a.integer(wait.more);
  a.flag(wait.is_barrier);
  a.flag(wait.exists);
  a.list(wait.waiting, AwaitedKeys::kClientsMax, [&](auto& client) { walk_client(a, client); });
}

void walk_waits(auto& a, Like<std::vector<AwaitedKeys>> auto& waits) {
  a.list(waits, 2 * AwaitedKeys::kWaitsMax, [&](auto& wait) { walk_wait(a, wait); });
}

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

std::string encode_awaited(std::vector<AwaitedKeys> waits, size_t bytes_max) {
  constexpr size_t kClientBytes = 2 * sizeof(int);
  std::string bytes;
  for (AwaitedKeys& wait : waits)
    wait.waiting.resize(std::min(wait.waiting.size(), bytes_max / 2 / kClientBytes));
  do {
    bytes.clear();
    FieldWriter writer(bytes);
    walk_waits(writer, waits);
    if (!waits.empty()) waits.pop_back();
  } while (bytes.size() > bytes_max);
  return bytes;
}

std::optional<std::vector<AwaitedKeys>> decode_awaited(std::string_view bytes) {
  std::vector<AwaitedKeys> waits;
  FieldReader reader(bytes);
  walk_waits(reader, waits);
  const bool is_whole =
      std::ranges::none_of(waits, &std::vector<AwaitedKey>::empty, &AwaitedKeys::keys);
  if (reader.end() != nullptr || !is_whole) return std::nullopt;
  return waits;
}

}  // namespace muster::hang
