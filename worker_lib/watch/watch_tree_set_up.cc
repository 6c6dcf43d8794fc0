// The set-up of the watch: Ready goes up the tree, Go comes down; or GiveUp ends it.

#include <fmt/format.h>

#include "worker_lib/watch/watch_tree.h"

namespace muster::worker {

using namespace watch;  // NOLINT: names of the state machine

Failure watch::absence(const Members& world, const std::vector<GlobalRank>& missing,
                       const char* action) {
  std::vector<Peer> peers;
  for (const GlobalRank rank : missing)
    peers.push_back(world[rank.value]);
  return {ErrorCode::timeout,
          fmt::format("{} did not {} in time; check whether {} stopped or overloaded",
                      describe(peers), action, peers.size() == 1 ? "it is" : "they are"),
          missing};
}

void WatchTree::on(const Begin&) {
  reconcile();
  report_ready();
}

// Reports once this rank's subtree is complete: all that it dials are linked, all below reported.
void WatchTree::report_ready() {
  if (reported_ || failed_ || !awaited_.empty()) return;
  if (!unlinked().empty()) return;
  reported_ = true;
  const int me = world_.me;
  if (me == 0) return start(places_, {});
  const int above = node(me) == me ? 0 : node(me);
  for (const auto& [link, rank] : links_) {
    if (rank == above) return out_->push_back(Send{link, Ready{places_}});
  }
}

void WatchTree::take(LinkId link, const Ready& ready) {
  if (awaited_.erase(links_.at(link)) == 0) return;
  places_.insert(places_.end(), ready.ports.begin(), ready.ports.end());
  report_ready();
}

void WatchTree::take(LinkId link, const Go& go) {
  start(go.ports, link);
}

void WatchTree::start(const std::vector<ListenPort>& ports, std::optional<LinkId> from) {
  if (started_ || failed_) return;
  started_ = true;
  for (const ListenPort& place : ports) {
    if (place.rank >= 0 && place.rank < world_.size())
      ports_[static_cast<size_t>(place.rank)] = place.port;
  }
  send_all(Go{ports}, from);
  out_->push_back(Started{});
}

// Ignores linked ranks: their death ends the link.
void WatchTree::on(const Ended& event) {
  if (!knows_gone(event.rank) && !is_linked(event.rank)) lose(event.rank);
}

void WatchTree::on(const Surrender& event) {
  give_up(event.failure);
}

void WatchTree::take(LinkId link, const GiveUp& event) {
  give_up(event.failure, link);
}

void WatchTree::give_up(const Failure& failure, std::optional<LinkId> from) {
  if (started_ || failed_) return;
  failed_ = failure;
  send_all(GiveUp{failure}, from);
  out_->push_back(Failed{failure});
}

// Staggers the deadlines: a rank that itself misses another gives up first, then those whose
// neighbours miss one, then those that only know that they heard nothing.
Instant WatchTree::set_up_deadline() const {
  if (started_ || failed_) return kNever;
  if (!unlinked().empty()) return deadline_;
  return instant_after(deadline_, awaited_.empty() ? kHearsay : kHearsay / 2);
}

std::set<int> WatchTree::unlinked() const {
  std::set<int> missing;
  for (const int rank : awaited_) {
    if (!is_linked(rank)) missing.insert(rank);
  }
  for (const int rank : first_dials_) {
    if (!is_linked(rank)) missing.insert(rank);
  }
  return missing;
}

Failure WatchTree::set_up_timeout() const {
  std::vector<GlobalRank> missing;
  const std::set<int> absent = unlinked();
  for (const int rank : absent.empty() ? awaited_ : absent)
    missing.push_back({rank});
  if (missing.empty())
    return {ErrorCode::timeout,
            "not all ranks connected in time, and no rank reported which are missing"};
  return absence(world_, missing, "connect");
}

}  // namespace muster::worker
