#include "rendezvous/membership/membership_ranks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "rendezvous/base/text.h"

namespace muster::membership {
namespace {

constexpr int kNone = -1;

// Takes the digits off the front of `text` and returns them without leading zeros.
std::string_view take_number(std::string_view& text) {
  size_t end = 0;
  while (end < text.size() && is_digit(text[end]))
    ++end;
  std::string_view number = text.substr(0, end);
  text.remove_prefix(end);
  while (number.size() > 1 && number.front() == '0')
    number.remove_prefix(1);
  return number;
}

// Ranks 0 .. n-1, assigned in several passes.
class Seats {
 public:
  explicit Seats(size_t count) : taken_(count, false), rank_of_(count, kNone) {}

  bool seated(size_t claim) const { return rank_of_[claim] != kNone; }
  bool is_free(int rank) const {
    return rank >= 0 && rank < static_cast<int>(taken_.size()) &&
           !taken_[static_cast<size_t>(rank)];
  }
  void seat(size_t claim, int rank) {
    taken_[static_cast<size_t>(rank)] = true;
    rank_of_[claim] = rank;
  }
  void seat_in_lowest_hole(size_t claim) {
    while (!is_free(lowest_))
      ++lowest_;
    seat(claim, lowest_);
  }
  std::vector<int> take() { return std::move(rank_of_); }

 private:
  std::vector<bool> taken_;
  std::vector<int> rank_of_;
  int lowest_ = 0;  // No rank below it is free.
};

// The order in which claims are considered: within each rule, ties go by name and agent id.
std::vector<size_t> natural_order(const std::vector<RankClaim>& claims) {
  std::vector<size_t> order(claims.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::ranges::sort(order, [&](size_t a, size_t b) {
    if (claims[a].host_name != claims[b].host_name)
      return natural_less(claims[a].host_name, claims[b].host_name);
    return claims[a].agent < claims[b].agent;
  });
  return order;
}

// Returns the rank to which this claim was entitled; kNone for a newcomer.
int former_rank(const RankClaim& claim) {
  return claim.node_rank.value_or(claim.last_rank);
}

enum class Family { none, v4, v6 };

Family family_of(std::string_view address) {
  if (address.empty()) return Family::none;
  if (address.starts_with("::ffff:")) return Family::v4;
  return address.find(':') == std::string_view::npos ? Family::v4 : Family::v6;
}

// Returns the most frequent loopback or non-loopback address; empty if there is none.
std::string_view majority(const std::vector<std::string_view>& dialled, bool loopback) {
  std::map<std::string_view, size_t> votes;
  for (const std::string_view address : dialled) {
    if (!address.empty() && is_loopback(address) == loopback) ++votes[address];
  }
  const auto most =
      std::ranges::max_element(votes, {}, [](const auto& vote) { return vote.second; });
  return most == votes.end() ? std::string_view{} : most->first;
}

}  // namespace

bool is_loopback(std::string_view address) {
  if (address.starts_with("::ffff:")) address.remove_prefix(7);
  return address == "::1" || address == "localhost" || address.starts_with("127.");
}

bool natural_less(std::string_view a, std::string_view b) {
  std::string_view left = a;
  std::string_view right = b;
  while (!left.empty() && !right.empty()) {
    if (is_digit(left.front()) && is_digit(right.front())) {
      const std::string_view x = take_number(left);
      const std::string_view y = take_number(right);
      if (x != y) return std::pair(x.size(), x) < std::pair(y.size(), y);
      continue;
    }
    if (left.front() != right.front()) return left.front() < right.front();
    left.remove_prefix(1);
    right.remove_prefix(1);
  }
  if (left.empty() != right.empty()) return left.empty();
  return a < b;  // They differ only in leading zeros.
}

std::vector<int> assign_ranks(const std::vector<RankClaim>& claims) {
  Seats seats(claims.size());
  const std::vector<size_t> order = natural_order(claims);
  for (const size_t i : order) {
    if (claims[i].node_rank && seats.is_free(*claims[i].node_rank))
      seats.seat(i, *claims[i].node_rank);
  }
  for (const size_t i : order) {
    if (!seats.seated(i) && !claims[i].node_rank && seats.is_free(claims[i].last_rank))
      seats.seat(i, claims[i].last_rank);
  }
  for (const size_t i : order) {
    if (claims[i].is_host && !seats.seated(i) && seats.is_free(0)) seats.seat(i, 0);
  }
  std::vector<std::pair<int, size_t>> displaced;  // Former rank, place in `order`.
  for (size_t place = 0; place < order.size(); ++place) {
    const int former = former_rank(claims[order[place]]);
    if (!seats.seated(order[place]) && former != kNone) displaced.emplace_back(former, place);
  }
  std::ranges::sort(displaced);
  for (const auto& [former, place] : displaced)
    seats.seat_in_lowest_hole(order[place]);
  for (const size_t i : order) {
    if (!seats.seated(i)) seats.seat_in_lowest_hole(i);
  }
  return seats.take();
}

std::vector<std::string> master_addresses(const std::vector<std::string_view>& dialled) {
  std::string_view common = majority(dialled, false);
  const bool local = common.empty();
  if (local) common = majority(dialled, true);
  if (common.empty()) common = "127.0.0.1";
  std::vector<std::string> addresses;
  addresses.reserve(dialled.size());
  for (const std::string_view address : dialled) {
    const bool own = !address.empty() && is_loopback(address) == local &&
                     family_of(address) != family_of(common);
    addresses.emplace_back(own ? address : common);
  }
  return addresses;
}

std::vector<Round> lay_out(const std::vector<RankClaim>& claims) {
  const std::vector<int> ranks = assign_ranks(claims);
  std::vector<std::string_view> dialled;
  std::vector<size_t> by_rank(claims.size());
  for (size_t i = 0; i < claims.size(); ++i) {
    dialled.push_back(claims[i].dialled);
    by_rank[static_cast<size_t>(ranks[i])] = i;
  }
  std::vector<std::string> addresses = master_addresses(dialled);
  std::vector<Round> rounds(claims.size());
  int world_size = 0;
  std::map<std::string_view, int> role_sizes;
  for (const size_t i : by_rank) {
    rounds[i].node_rank = ranks[i];
    rounds[i].nodes = static_cast<int>(claims.size());
    rounds[i].base_rank = world_size;
    rounds[i].base_role_rank = role_sizes[claims[i].role];
    rounds[i].master_addr = std::move(addresses[i]);
    world_size += claims[i].slots;
    role_sizes[claims[i].role] += claims[i].slots;
  }
  for (size_t i = 0; i < rounds.size(); ++i) {
    rounds[i].world_size = world_size;
    rounds[i].role_world_size = role_sizes[claims[i].role];
  }
  return rounds;
}

}  // namespace muster::membership
