#include "tests/unit/agent/hang/node_net.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "rendezvous/base/error.h"

namespace muster::hang {
namespace {

using std::chrono::seconds;

constexpr Duration kAskEvery = seconds(1);
constexpr int kHonestMessages = 3;

}  // namespace

NodeNet::NodeNet(const std::vector<int>& ranks_of, const Channel& channel, uint64_t seed,
                 std::function<void(const Event&)> tell)
    : channel_(channel),
      tell_(std::move(tell)),
      prng_(seed),
      others_(std::accumulate(ranks_of.begin(), ranks_of.end(), 0), 0, ranks_of.front()) {
  for (const int workers : ranks_of) {
    const auto base = static_cast<int>(node_of_.size());
    const auto index = static_cast<int>(nodes_.size());
    const Duration ahead = index == 0 ? Duration{} : seconds(prng_.below(2000)) - seconds(900);
    nodes_.push_back({base, workers, ahead, NodeReporter("node", base, workers)});
    node_of_.insert(node_of_.end(), static_cast<size_t>(workers), index);
  }
}

Duration NodeNet::ahead(int rank) const {
  return nodes_[static_cast<size_t>(node_of_[static_cast<size_t>(rank)])].ahead;
}

void NodeNet::see(Instant now, int rank, const Event& event) {
  const int index = node_of_[static_cast<size_t>(rank)];
  if (index == 0) return tell_(event);
  node(index).reporter.note(now + node(index).ahead, event);
}

void NodeNet::looked(Instant now) {
  for (size_t i = 1; i < nodes_.size(); ++i) {
    Node& one = nodes_[i];
    std::optional<std::string> bytes = one.reporter.message(now + one.ahead);
    if (!bytes) continue;
    const int liar = channel_.garbage;
    const bool lies = liar >= one.base_rank && liar < one.base_rank + one.workers;
    if (lies && ++one.messages > kHonestMessages) bytes = lie(one, *bytes);
    one.bytes += bytes->size();
    send(now, {.sent = now, .node = static_cast<int>(i), .bytes = *std::move(bytes), .ranks = {}});
  }
  if (now - asked_ >= kAskEvery) ask(now);
}

// Adds to the message reports on ranks of other nodes: that they stand where the node's first rank
// does but made different calls, or that they have ended.
std::string NodeNet::lie(const Node& node, const std::string& bytes) {
  const Instant now{seconds(100'000)};
  NodeDigest digest = decode_node_digest(bytes, now).value();
  for (int rank = 0; rank < static_cast<int>(node_of_.size()); ++rank) {
    const bool is_own = rank >= node.base_rank && rank < node.base_rank + node.workers;
    RankNews lie = digest.ranks.front();
    if (is_own || !lie.digest) continue;
    lie.rank = rank;
    lie.version += 1000;
    if (prng_.chance(1, 50)) lie.code = 0;
    std::erase_if(lie.digest->groups, [&](GroupDigest& group) {
      const auto place = std::ranges::find(group.ranks, rank);
      group.own_rank = static_cast<int>(place - group.ranks.begin());
      for (CallDigest& call : group.calls)
        call.call.count += 1000;
      return place == group.ranks.end();
    });
    digest.ranks.push_back(std::move(lie));
  }
  std::ranges::sort(digest.ranks, {}, &RankNews::rank);
  return encode(digest, now);
}

void NodeNet::look_at(Instant now, const std::vector<int>& ranks) {
  looked_at_ = ranks;
  ask(now);
}

void NodeNet::ask(Instant now) {
  asked_ = now;
  for (auto& [node, ranks] : others_.by_node(looked_at_))
    send(now, {.sent = now, .node = node, .bytes = {}, .ranks = ranks});
}

std::vector<int> NodeNet::wanted(Instant now) const {
  std::vector<int> all;
  std::ranges::copy_if(looked_at_, std::back_inserter(all),
                       [this](int rank) { return node_of_[static_cast<size_t>(rank)] == 0; });
  for (size_t i = 1; i < nodes_.size(); ++i)
    std::ranges::copy(nodes_[i].reporter.wanted(now + nodes_[i].ahead), std::back_inserter(all));
  return all;
}

void NodeNet::send(Instant now, Letter letter) {
  if (prng_.below(100) < static_cast<uint64_t>(channel_.lost)) return;
  const int times = prng_.below(100) < static_cast<uint64_t>(channel_.repeated) ? 2 : 1;
  for (int i = 0; i < times; ++i) {
    const auto delay = prng_.below(static_cast<uint64_t>(channel_.delay.count()) + 1);
    letters_.emplace(now + Duration(static_cast<int64_t>(delay)), letter);
  }
}

void NodeNet::deliver(Instant now) {
  while (!letters_.empty() && letters_.begin()->first <= now) {
    const Letter letter = std::move(letters_.extract(letters_.begin()).mapped());
    if (!letter.ranks.empty()) {
      node(letter.node).reporter.want(now + node(letter.node).ahead, letter.ranks);
      continue;
    }
    const auto error = prng_.below(2 * static_cast<uint64_t>(kClockError.count()));
    const Instant sent = letter.sent + Duration(static_cast<int64_t>(error)) - kClockError;
    const auto digest = decode_node_digest(letter.bytes, std::min(sent, now));
    CHECK(digest);
    for (const Event& event : others_.take(letter.node, *digest))
      tell_(event);
  }
}

}  // namespace muster::hang
