#include "worker_lib/watch/watch_tree.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/error.h"

namespace muster::worker {

using namespace watch;  // NOLINT: names of the state machine

namespace {

using NewsKind = Watch::News::Kind;

}  // namespace

WatchTree::WatchTree(Members world, uint16_t port, Instant deadline)
    : world_(std::move(world)),
      deadline_(deadline),
      node_of_(firsts_of_nodes(world_)),
      node_size_(static_cast<size_t>(world_.size())),
      ports_(static_cast<size_t>(world_.size())),
      link_count_(static_cast<size_t>(world_.size())),
      gone_(static_cast<size_t>(world_.size())),
      agreements_(world_.me, world_.size()),
      places_{{world_.me, port}} {
  const int me = world_.me;
  CHECK(me >= 0 && me < world_.size());
  for (int rank = 0; rank < world_.size(); ++rank) {
    ++node_size_[static_cast<size_t>(node(rank))];
    const bool is_mine = node(rank) == me || (me == 0 && node(rank) == rank);
    if (is_mine && rank != me) awaited_.insert(rank);
  }
  first_dials_ = wanted();
}

Failure WatchTree::death_of(const Peer& peer, bool lives) {
  const char* const how = lives ? " closed its connections, but its process goes on: it called "
                                  "exec(), or closed descriptors that it had not opened"
                                : " died; its own output may say why";
  return {ErrorCode::peer_failed, describe(peer) + how, {peer.rank}};
}

void WatchTree::step(Instant now, const Event& event, std::vector<Effect>& out) {
  now_ = now;
  out_ = &out;
  std::visit([this](const auto& e) { on(e); }, event);
  out_ = nullptr;
}

Instant WatchTree::next_deadline() const {
  if (parted_) return kNever;
  Instant next = leaving_ ? part_by_ : kNever;
  next = std::min({next, set_up_deadline(), agreements_.next_deadline()});
  if (leaving_) return next;
  for (const auto& [rank, doubt] : doubts_)
    next = std::min(next, doubt.until);
  return next;
}

// ---- which ranks to be linked to

bool WatchTree::is_there(int rank) const {
  if (knows_gone(rank)) return false;
  const auto doubt = doubts_.find(rank);
  return doubt == doubts_.end() || doubt->second.returns;
}

// Returns the lowest rank still there, of one node or (-1) of all; -1 if none is left.
int WatchTree::first_of_node(int wanted_node) const {
  for (int rank = std::max(wanted_node, 0); rank < world_.size(); ++rank) {
    if ((wanted_node < 0 || node(rank) == wanted_node) && is_there(rank)) return rank;
  }
  return -1;
}

// Returns the rank that can pass this one's departure on. REQUIRES: leaving_ (it counts as gone).
int WatchTree::heir() const {
  const int neighbour = first_of_node(node(world_.me));
  return neighbour >= 0 ? neighbour : first_of_node(-1);
}

// Returns the ranks to be linked to, ascending.
std::vector<int> WatchTree::wanted() const {
  const int me = world_.me;
  if (leaving_) {
    const auto stays = [&](const auto& link) { return !knows_gone(link.second); };
    if (heard_ || heir() < 0 || std::ranges::any_of(links_, stays)) return {};
    return {heir()};
  }
  const int first = first_of_node(node(me));
  if (first == me) return wanted_of_first();
  if (node_size_[static_cast<size_t>(node(me))] > kMeshRanksMax) return {first};
  std::vector<int> below;
  for (int rank = first; rank < me; ++rank) {
    if (is_local(rank) && is_there(rank)) below.push_back(rank);
  }
  return below;
}

// Returns the links of a node's first rank. One that succeeds a rank that is gone does not wait to
// be dialled: those that should dial it may be gone, too, and no rank would notice.
std::vector<int> WatchTree::wanted_of_first() const {
  const int me = world_.me;
  const int root = first_of_node(-1);
  std::vector<int> ranks;
  if (root != me) ranks.push_back(root);
  if (!started_) return ranks;
  std::set<int> nodes{node(me)};
  for (int rank = 0; rank < world_.size(); ++rank) {
    if (rank == me || rank == root || !is_there(rank)) continue;
    const bool is_first = nodes.insert(node(rank)).second;
    if (is_local(rank) || (root == me && is_first)) ranks.push_back(rank);
  }
  return ranks;
}

void WatchTree::reconcile() {
  if (parted_ || failed_) return;
  const Instant until = started_ ? instant_after(now_, leaving_ ? kPart : kDoubt)
                                 : instant_after(deadline_, kHearsay);
  for (const int rank : wanted()) {
    if (!is_linked(rank)) dial(rank, until);
  }
}

void WatchTree::dial(int rank, Instant until) {
  if (!dialling_.insert(rank).second) return;
  const uint16_t port = is_local(rank) ? uint16_t{0} : ports_[static_cast<size_t>(rank)];
  out_->push_back(Dial{rank, port, until});
}

// ---- links

void WatchTree::on(const Linked& event) {
  CHECK(event.rank >= 0 && event.rank < world_.size() && event.rank != world_.me);
  links_[event.link] = event.rank;
  ++link_count_[static_cast<size_t>(event.rank)];
  dialling_.erase(event.rank);
  doubts_.erase(event.rank);
  for (const Watch::News& news : log_)
    out_->push_back(Send{event.link, news});
  for (const Message& message : agreements_.known())
    out_->push_back(Send{event.link, message});
  if (failed_) out_->push_back(Send{event.link, GiveUp{*failed_}});
  if (!started_) report_ready();
}

bool WatchTree::expects_end(LinkId link) const {
  const auto known = links_.find(link);
  return leaving_ || known == links_.end() || knows_gone(known->second);
}

void WatchTree::on(const Closed& event) {
  const auto link = links_.find(event.link);
  if (link == links_.end()) return;
  const int rank = link->second;
  forget(event.link);
  if (knows_gone(rank) || is_linked(rank)) {
    reconcile();
  } else if (leaving_) {
    doubts_[rank] = {};  // It sent no Heard: it died or is leaving, too. Try another.
    reconcile();
  } else if (is_local(rank)) {
    lose(rank, event.lives);
  } else {
    doubts_[rank] = {instant_after(now_, kReturn), true};
    dial(rank, instant_after(now_, kReturn));
  }
  conclude_leave();
}

void WatchTree::forget(LinkId link) {
  --link_count_[static_cast<size_t>(links_.at(link))];
  links_.erase(link);
}

void WatchTree::on(const DialFailed& event) {
  const int rank = event.rank;
  dialling_.erase(rank);
  if (!knows_gone(rank) && !is_linked(rank)) {
    const auto doubt = doubts_.find(rank);
    const bool was_linked = doubt != doubts_.end() && doubt->second.returns;
    if (was_linked && event.silence != Silence::mute) return lose(rank);
    const bool refused = event.silence == Silence::refused;
    doubts_[rank] = {refused ? instant_after(now_, kDoubt) : kNever, false};
  }
  reconcile();
  conclude_leave();
}

// ---- updates

void WatchTree::on(const Received& event) {
  if (!links_.contains(event.link)) return;
  std::visit([&](const auto& message) { take(event.link, message); }, event.message);
}

void WatchTree::take(LinkId link, const Watch::News& news) {
  publish(news, link);
  if (news.kind == NewsKind::left && links_.at(link) == news.rank.value) {
    if (!leaving_) out_->push_back(Send{link, Heard{}});
    out_->push_back(Hangup{link});
    forget(link);
  }
  reconcile();
  conclude_leave();
}

void WatchTree::take(LinkId, const Heard&) {
  heard_ = heard_ || leaving_;
  conclude_leave();
}

void WatchTree::on(const Tell& event) {
  CHECK(event.news.rank.value == world_.me);
  publish(event.news, {});
}

void WatchTree::on(const Cast& event) {
  carry(agreements_.cast(now_, event.vote));
}

// Performs what agreements need. A vote that cannot be sent is among those that a new link gets.
void WatchTree::carry(const Agreements::Step& step, std::optional<LinkId> from) {
  const int first = first_of_node(node(world_.me));
  const int above = first == world_.me ? first_of_node(-1) : first;
  const auto link = std::ranges::find(links_, above, [](const auto& one) { return one.second; });
  for (const Vote& vote : step.up) {
    if (link != links_.end()) out_->push_back(Send{link->first, vote});
  }
  for (const Message& message : step.onward)
    send_all(message, from);
  for (const Message& message : step.all)
    send_all(message);
  out_->insert(out_->end(), step.decided.begin(), step.decided.end());
  out_->insert(out_->end(), step.missing.begin(), step.missing.end());
}

// Returns false if the update was known or is invalid.
bool WatchTree::publish(const Watch::News& news, std::optional<LinkId> from) {
  const int rank = news.rank.value;
  if (rank < 0 || rank >= world_.size()) return false;
  // Another rank took this one for dead, and the others' belief cannot be changed.
  if (news.kind == NewsKind::died && rank == world_.me) return false;
  const bool goes = news.kind == NewsKind::died || news.kind == NewsKind::left;
  if (goes && knows_gone(rank)) return false;
  if (!goes && !known_.insert(encode(news)).second) return false;
  log_.push_back(news);
  if (goes) {
    gone_[static_cast<size_t>(rank)] = true;
    doubts_.erase(rank);
  }
  reasons_.note(now_, news);
  // Other ranks first: a listener may end this process at once.
  send_all(news, from);
  if (rank != world_.me && !leaving_ && news.kind != NewsKind::stopped) announce(news);
  if (news.kind == NewsKind::died) give_up(news.failure);
  if (goes) carry(agreements_.gone(now_, rank));
  return true;
}

// Announces an update; the death of a rank that ended because of another gets that reason.
void WatchTree::announce(Watch::News news) {
  std::optional<Failure> told;
  if (news.kind == NewsKind::died) told = reasons_.explain(now_, world_, news);
  out_->push_back(Announce{std::move(news), std::move(told)});
}

void WatchTree::lose(int rank, bool lives) {
  publish({NewsKind::died, {rank}, {}, death_of(world_[rank], lives)}, {});
  reconcile();
}

void WatchTree::send_all(const Message& message, std::optional<LinkId> except) {
  for (const auto& [link, rank] : links_) {
    if (link != except) out_->push_back(Send{link, message});
  }
}

// ---- leaving, and time

void WatchTree::on(const Leave&) {
  if (leaving_) return;
  leaving_ = true;
  part_by_ = instant_after(now_, kPart);
  const Peer& self = world_.self();
  const std::string words = describe(self) + " left (destroy_process_group)";
  publish({NewsKind::left, self.rank, {}, {ErrorCode::peer_failed, words, {self.rank}}}, {});
  reconcile();
  conclude_leave();
}

void WatchTree::conclude_leave() {
  if (!leaving_ || parted_) return;
  if (heard_) part_by_ = std::min(part_by_, instant_after(now_, kPartHeard));
  // A dialled rank may already have linked this one, and would take the end for a death.
  const bool is_known = heard_ || heir() < 0 || failed_;
  const bool is_done = links_.empty() && dialling_.empty() && is_known;
  if (!is_done && now_ < part_by_) return;
  parted_ = true;
  out_->push_back(Parted{});
}

void WatchTree::on(const Tick&) {
  if (now_ >= set_up_deadline()) give_up(set_up_timeout());
  carry(agreements_.tick(now_));
  if (leaving_) return conclude_leave();
  std::vector<int> lost;
  for (const auto& [rank, doubt] : doubts_) {
    if (doubt.until <= now_) lost.push_back(rank);
  }
  for (const int rank : lost)
    lose(rank);
}

// ---- the set-up: Ready goes up the tree, Go comes down; or GiveUp ends it

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
