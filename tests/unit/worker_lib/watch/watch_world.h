// A job's watches in virtual time: every rank is a WatchTree, links are queues that deliver in
// order at random moments, and ranks are killed, stopped and made to leave. One seed decides
// everything.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "rendezvous/base/prng.h"
#include "worker_lib/watch/watch_tree.h"

namespace muster::worker::watch_test {

using namespace std::chrono_literals;
using News = Watch::News;

struct SimulatedRank {
  enum class State { runs, dead, parted };

  std::unique_ptr<WatchTree> tree;
  State state = State::runs;
  bool stopped = false;  // Reads nothing; its kernel still answers.
  bool started = false;
  bool leaves = false;
  std::optional<Failure> failed;
  std::vector<News> heard;
  std::vector<watch::Decision> decisions;
  Instant left_at{}, parted_at{};

  bool is_up() const { return state == State::runs; }
};

class WatchWorld {
 public:
  WatchWorld(uint64_t seed, const std::vector<int>& node_of, Duration deadline = 60s)
      : prng_(seed), node_of_(node_of) {
    Members world;
    for (size_t rank = 0; rank < node_of.size(); ++rank) {
      Peer peer;
      peer.rank = {static_cast<int>(rank)};
      peer.node = peer.host = "node" + std::to_string(node_of[rank]);
      peer.pid = 100 + static_cast<int>(rank);
      world.peers.push_back(peer);
    }
    ranks_.resize(node_of.size());
    for (size_t rank = 0; rank < node_of.size(); ++rank) {
      world.me = static_cast<int>(rank);
      ranks_[rank].tree =
          std::make_unique<WatchTree>(world, static_cast<uint16_t>(4000 + rank), now_ + deadline);
    }
  }

  void begin() {
    for (int rank = 0; rank < size(); ++rank)
      step(rank, watch::Begin{});
  }

  // Number of links whose end was expected.
  uint64_t expected_ends() const { return expected_ends_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  SimulatedRank& operator[](int rank) { return ranks_[static_cast<size_t>(rank)]; }
  Prng& prng() { return prng_; }
  Instant now() const { return now_; }
  uint64_t messages() const { return messages_; }

  // ---- what happens to ranks

  void kill(int rank) {
    (*this)[rank].state = SimulatedRank::State::dead;
    close_all(rank);
  }
  // The same by a loss of power: some of what it has sent last does not arrive.
  void cut_power(int rank) {
    for (auto& [id, pipe] : pipes_) {
      if (pipe.from == rank && !pipe.items.empty())
        pipe.items.resize(pipe.items.size() - prng_.below(pipe.items.size()));
    }
    kill(rank);
  }
  void leave(int rank) {
    (*this)[rank].leaves = true;
    (*this)[rank].left_at = now_;
    step(rank, watch::Leave{});
  }
  void abort(int rank, const std::string& group,
             const Failure& why = {ErrorCode::aborted, "enough"}) {
    step(rank, watch::Tell{{News::Kind::aborted, {rank}, group, why}});
  }
  // Delivers SIGTERM, with the reason that this rank knows.
  void stop(int rank, const Failure& why) {
    step(rank, watch::Tell{{News::Kind::stopped, {rank}, {}, why}});
  }
  // `rank` learns from elsewhere that the process of `who` is over.
  void know_ended(int rank, int who) { step(rank, watch::Ended{who}); }
  void cast(int rank, watch::Vote vote) { step(rank, watch::Cast{std::move(vote)}); }
  void surrender(int rank, const Failure& why) { step(rank, watch::Surrender{why}); }
  // The same, if they are on different nodes.
  void cut_between_nodes(int a, int b) {
    if (node_of_[static_cast<size_t>(a)] != node_of_[static_cast<size_t>(b)]) cut(a, b);
  }
  // A middlebox forgets the connections between the two.
  void cut(int a, int b) {
    for (auto& [id, pipe] : pipes_) {
      if ((pipe.from != a || pipe.to != b) && (pipe.from != b || pipe.to != a)) continue;
      pipe.items.clear();
      pipe.items.push_back(End{});
    }
  }

  // ---- time

  // Makes one delivery, or advances to the next timer. False: neither is left.
  bool advance() {
    std::vector<watch::LinkId> ready;
    for (const auto& [id, pipe] : pipes_) {
      if (!pipe.items.empty() && (!(*this)[pipe.to].is_up() || !(*this)[pipe.to].stopped))
        ready.push_back(id);
    }
    const size_t choices = ready.size() + dials_.size();
    if (choices == 0) return jump();
    now_ += std::chrono::microseconds(prng_.below(20));
    const size_t choice = prng_.below(choices);
    if (choice < ready.size()) {
      deliver(ready[choice]);
    } else {
      answer(choice - ready.size());
    }
    tick();
    return true;
  }
  void run(int steps) {
    while (steps-- > 0 && advance()) {
    }
  }
  void pass(Duration time) { now_ += time; }
  // Runs until nothing is left to happen.
  void settle() {
    while (advance()) {
    }
  }

 public:
  struct Greeting {};  // The acceptor's Hello.
  struct End {};
  using Item = std::variant<Greeting, watch::Message, End>;

  // One direction of a link. Its number and its reverse's differ in the last bit.
  struct Pipe {
    int from, to;
    bool known = false;  // To the receiver's tree.
    bool shut = false;   // The sender closed it.
    std::deque<Item> items;
  };
  struct PendingDial {
    int from;
    watch::Dial dial;
  };

  static watch::LinkId reverse(watch::LinkId id) { return id ^ 1; }

  // An expected end must announce no death.
  void step_closed(int rank, watch::LinkId link) {
    SimulatedRank& self = (*this)[rank];
    const bool expected = self.tree->expects_end(link);
    const size_t heard = self.heard.size();
    step(rank, watch::Closed{link});
    if (expected) ++expected_ends_;
    EXPECT_TRUE(!expected || self.heard.size() == heard) << "rank " << rank;
  }

  void step(int rank, const WatchTree::Event& event) {
    std::vector<WatchTree::Effect> effects;
    (*this)[rank].tree->step(now_, event, effects);
    for (const WatchTree::Effect& effect : effects)
      perform(rank, effect);
  }

  // A rank identifies a link by the pipe that it reads.
  void perform(int rank, const WatchTree::Effect& effect) {
    SimulatedRank& self = (*this)[rank];
    if (const auto* dial = std::get_if<watch::Dial>(&effect)) dials_.push_back({rank, *dial});
    if (const auto* send = std::get_if<watch::Send>(&effect)) push(send->link, send->message);
    if (const auto* hangup = std::get_if<watch::Hangup>(&effect)) close(hangup->link);
    if (const auto* announce = std::get_if<watch::Announce>(&effect))
      self.heard.push_back(announce->news);
    if (const auto* decision = std::get_if<watch::Decision>(&effect))
      self.decisions.push_back(*decision);
    if (std::holds_alternative<watch::Started>(effect)) self.started = true;
    if (const auto* failed = std::get_if<watch::Failed>(&effect)) self.failed = failed->failure;
    if (std::holds_alternative<watch::Parted>(effect)) {
      self.state = SimulatedRank::State::parted;
      self.parted_at = now_;
      close_all(rank);
    }
  }

  void push(watch::LinkId reading, Item item) {
    const auto pipe = pipes_.find(reverse(reading));
    if (pipe == pipes_.end() || pipe->second.shut) return;
    if (!std::holds_alternative<End>(item)) ++messages_;
    pipe->second.items.push_back(std::move(item));
  }
  // Closes the link of the rank that reads `reading`; the other side reads to its end.
  void close(watch::LinkId reading) {
    push(reading, End{});
    const auto pipe = pipes_.find(reverse(reading));
    if (pipe != pipes_.end()) pipe->second.shut = true;
    pipes_.erase(reading);
  }
  void close_all(int rank) {
    std::vector<watch::LinkId> reading;
    for (const auto& [id, pipe] : pipes_) {
      if (pipe.to == rank) reading.push_back(id);
    }
    for (const watch::LinkId id : reading)
      close(id);
    std::erase_if(dials_, [&](const PendingDial& pending) { return pending.from == rank; });
  }

  void deliver(watch::LinkId id) {
    Pipe& pipe = pipes_.at(id);
    const int to = pipe.to;
    const Item item = std::move(pipe.items.front());
    pipe.items.pop_front();
    if (std::holds_alternative<End>(item)) {
      const bool known = pipe.known;
      const int from = pipe.from;
      close(id);
      return known ? step_closed(to, id)
                   : step(to, watch::DialFailed{from, watch::Silence::refused});
    }
    if (std::holds_alternative<Greeting>(item)) {
      pipe.known = true;
      return step(to, watch::Linked{id, pipe.from});
    }
    step(to, watch::Received{id, std::get<watch::Message>(item)});
  }

  void answer(size_t index) {
    const PendingDial pending = dials_[index];
    SimulatedRank& other = (*this)[pending.dial.rank];
    if (other.is_up() && other.stopped) {
      if (now_ < pending.dial.until) return;
      dials_.erase(dials_.begin() + static_cast<std::ptrdiff_t>(index));
      return step(pending.from, watch::DialFailed{pending.dial.rank, watch::Silence::mute});
    }
    dials_.erase(dials_.begin() + static_cast<std::ptrdiff_t>(index));
    if (!other.is_up())
      return step(pending.from, watch::DialFailed{pending.dial.rank, watch::Silence::refused});
    const watch::LinkId accepted = next_link_, dialled = next_link_ + 1;
    next_link_ += 2;
    pipes_[accepted] = {pending.from, pending.dial.rank, true, false, {}};
    pipes_[dialled] = {pending.dial.rank, pending.from, false, false, {Greeting{}}};
    step(pending.dial.rank, watch::Linked{accepted, pending.from});
  }

  void tick() {
    for (int rank = 0; rank < size(); ++rank) {
      if (!(*this)[rank].is_up() || (*this)[rank].stopped) continue;
      if ((*this)[rank].tree->next_deadline() <= now_) step(rank, watch::Tick{});
    }
  }
  bool jump() {
    Instant next = kNever;
    for (SimulatedRank& rank : ranks_) {
      if (rank.is_up() && !rank.stopped) next = std::min(next, rank.tree->next_deadline());
    }
    if (next == kNever) return false;
    now_ = std::max(now_, next);
    tick();
    return true;
  }

  Prng prng_;
  std::vector<int> node_of_;
  Instant now_ = Instant(1h);
  std::vector<SimulatedRank> ranks_;
  std::map<watch::LinkId, Pipe> pipes_;
  std::vector<PendingDial> dials_;
  watch::LinkId next_link_ = 100;
  uint64_t messages_ = 0;
  uint64_t expected_ends_ = 0;
};

// Nodes in blocks: {0, 0, 1, 1} for 4 ranks on 2 nodes.
inline std::vector<int> blocks(int ranks, int nodes) {
  std::vector<int> node_of;
  for (int rank = 0; rank < ranks; ++rank)
    node_of.push_back(rank * nodes / ranks);
  return node_of;
}

}  // namespace muster::worker::watch_test
