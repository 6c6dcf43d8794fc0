// Another node may send any bytes. Checked: a decoded digest is within its bounds, survives another
// round trip, and leaves the reader's own ranks alone.
#include <algorithm>

#include "agent/hang/node_digest.h"
#include "agent/hang/remote_nodes.h"
#include "tests/fuzz/fuzz_input.h"

namespace muster::fuzz {
namespace {

const Instant kThen{std::chrono::seconds(100'000'000)};

int rank_of(const hang::Event& event) {
  if (const auto* const one = std::get_if<hang::Digested>(&event)) return one->digest.rank;
  if (const auto* const one = std::get_if<hang::Confirmed>(&event)) return one->rank;
  if (const auto* const one = std::get_if<hang::LifeSeen>(&event)) return one->rank;
  if (const auto* const one = std::get_if<hang::Ended>(&event)) return one->rank;
  return 2;
}

void check(std::string_view input) {
  const std::optional<hang::NodeDigest> digest = hang::decode_node_digest(input, kThen);
  if (!digest) return;
  int last = -1;
  size_t members = 0;
  for (const hang::RankNews& news : digest->ranks) {
    CHECK(news.rank > std::exchange(last, news.rank));
    if (!news.digest) continue;
    CHECK(news.digest->groups.size() <= 128 && news.digest->at <= kThen);
    for (const hang::GroupDigest& group : news.digest->groups) {
      CHECK(group.calls.size() <= 64 && group.hashes.size() <= 64 && group.id.size() <= 256);
      members += group.ranks.size();
    }
  }
  CHECK(members <= 1'000'000);
  const std::string again = hang::encode(*digest, kThen);
  CHECK(hang::decode_node_digest(again, kThen) == digest);
  hang::RemoteNodes nodes(4, 0, 2);
  for (const hang::Event& event : nodes.take(1, *digest))
    CHECK(rank_of(event) >= 2 && rank_of(event) < 4);
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::check(muster::fuzz::as_text(data, size));
  return 0;
}
