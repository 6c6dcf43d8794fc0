// The state machine behind the watch. Pure: takes links and messages, and says which ranks to dial,
// what to send, and what to announce to the process.
//
// Links. Every rank of a node holds a link to the node's first rank; on a node with few ranks, to
// all ranks below its own (so that no stopped process is in the others' way). The first rank of a
// node holds one to the first rank of all. "First" is the lowest rank still there, so when one
// goes, the ranks that were linked to it link themselves to its successor.
//
// Updates are flooded: a rank passes each new one on over all its other links, and a new link
// begins with all that both sides know. So nothing is lost when the tree changes shape.
//
// Deaths. A rank that leaves in order sends `left` first.
// - A link ends without `left`: a death, or between nodes a middlebox that reset the connection.
//   Within a node the peer is declared dead at once, between nodes once its address no longer
//   answers.
// - A peer without a link refuses a connection: a death, or the peer has left and that update is
//   still on its way. This rank dials the next one, and declares the peer dead only after kDoubt.
//
// Agreements (agreements.h). Votes go up this tree, all else floods it.
//
// Stopping. A rank that got SIGTERM reports it before its calls end, with the reason as far as
// known; its later death is then not taken for the first failure. Nor is that of a rank whose group
// was given up because of another rank, if it ends within kAftermath.
//
// Leaving. A leaving rank waits until a rank that stays has passed that on: then all will know.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/fields.h"
#include "rendezvous/base/time.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/watch/agreements.h"
#include "worker_lib/watch/end_reasons.h"
#include "worker_lib/watch/watch.h"
#include "worker_lib/watch/watch_wire.h"

namespace muster::worker {

namespace watch {

using LinkId = uint64_t;

// ---- events

struct Begin {};
// Both sides have authenticated; `rank` is the peer, whichever side dialled.
struct Linked {
  LinkId link = 0;
  int rank = -1;
};
struct Received {
  LinkId link = 0;
  Message message;
};
struct Closed {  // Closed by the peer, or broken. Not after a Hangup.
  LinkId link = 0;
  bool lives = false;  // The peer's process is known to go on.
};
enum class Silence : uint8_t {
  refused,  // No process listens there any more.
  mute,     // A process is there, but silent: perhaps stopped.
  none,     // No answer at all.
};
struct DialFailed {
  int rank = -1;
  Silence silence = Silence::refused;
};
struct Tell {  // An update of this process.
  Watch::News news;
};
struct Cast {  // This process's vote in an agreement.
  Vote vote;
};
// The process of `rank`, which may never have been linked, is known to have ended.
struct Ended {
  int rank = -1;
};
// This process cannot take part. No effect once all are linked.
struct Surrender {
  Failure failure;
};
struct Leave {};
struct Tick {};

// ---- effects

// Answered by Linked or DialFailed (Silence::mute or none, if undecided at `until`).
struct Dial {
  int rank = -1;
  uint16_t port = 0;  // Used on another node; 0: known since Begin.
  Instant until{};
};
struct Send {
  LinkId link = 0;
  Message message;
  friend bool operator==(const Send&, const Send&) = default;
};
// Follows everything sent on the link.
struct Hangup {
  LinkId link = 0;
  friend bool operator==(const Hangup&, const Hangup&) = default;
};
struct Announce {  // Goes to this process.
  Watch::News news;
  std::optional<Failure> told = {};  // Reason of a dead rank that had been stopped.
};
struct Started {  // All ranks are linked.
};
struct Failed {  // Set-up failed; instead of Started, once.
  Failure failure;
};
struct Parted {  // Answers Leave: all links may be closed.
};

// Size of a node up to which each rank holds a link to each.
inline constexpr int kMeshRanksMax = 16;
// Grace before a rank that refuses connections is declared dead.
inline constexpr Duration kDoubt = std::chrono::milliseconds(200);
// Grace for restoring a broken connection between nodes.
inline constexpr Duration kReturn = std::chrono::milliseconds(300);
// Limits for leaving: in all, and once a rank that stays has acknowledged it.
inline constexpr Duration kPart = std::chrono::milliseconds(500);
inline constexpr Duration kPartHeard = std::chrono::milliseconds(50);
// Extra time for the set-up of a rank that heard nothing, so that the rank which misses another one
// gives up first; half of it if it knows that a neighbour is waiting.
inline constexpr Duration kHearsay = std::chrono::milliseconds(250);

// The timeout of a set-up that `missing`, not empty, did not complete in time; `action`: "connect".
Failure absence(const Members& world, const std::vector<GlobalRank>& missing, const char* action);

}  // namespace watch

class WatchTree {
 public:
  using Event = std::variant<watch::Begin, watch::Linked, watch::Received, watch::Closed,
                             watch::DialFailed, watch::Tell, watch::Cast, watch::Ended,
                             watch::Surrender, watch::Leave, watch::Tick>;
  using Effect =
      std::variant<watch::Dial, watch::Send, watch::Hangup, watch::Announce, watch::Started,
                   watch::Failed, watch::Parted, watch::Decision, watch::Missing>;

  // `port`: this rank's, for other nodes. `deadline`: the set-up's.
  WatchTree(Members world, uint16_t port, Instant deadline);

  void step(Instant now, const Event& event, std::vector<Effect>& out);
  Instant next_deadline() const;

  // Returns the failure for a rank that died; or whose process goes on without its connections.
  static Failure death_of(const Peer& peer, bool lives = false);

  // Ranks that this one dials at Begin, ascending; their addresses must be known by then.
  const std::vector<int>& first_dials() const { return first_dials_; }
  // Ports at which the ranks listen for other nodes. Known from Started on.
  const std::vector<uint16_t>& ports() const { return ports_; }
  bool is_setting_up() const { return !started_ && !failed_; }
  // True if this link's end means no death: its rank is known to be gone, or this one is leaving.
  bool expects_end(watch::LinkId link) const;
  // Ranks that this one waits for or dials, not linked yet. REQUIRES: is_setting_up().
  std::set<int> unlinked() const;

 private:
  struct Doubt {
    Instant until = kNever;  // Declared dead then; kNever: not declared dead, only not dialled.
    // True if its link broke: this rank waits for it instead of passing it over.
    bool returns = false;
  };

  void on(const watch::Begin&);
  void on(const watch::Linked& event);
  void on(const watch::Received& event);
  void on(const watch::Closed& event);
  void on(const watch::DialFailed& event);
  void on(const watch::Tell& event);
  void on(const watch::Cast& event);
  void on(const watch::Ended& event);
  void on(const watch::Surrender& event);
  void on(const watch::Leave&);
  void on(const watch::Tick&);

  void take(watch::LinkId link, const Watch::News& news);
  void take(watch::LinkId link, const watch::Ready& ready);
  void take(watch::LinkId link, const watch::Go& go);
  void take(watch::LinkId link, const watch::GiveUp& event);
  void take(watch::LinkId link, const watch::Heard&);
  void take(
      watch::LinkId link,
      const Like<watch::Vote, watch::Proposal, watch::Decision, watch::Missing> auto& message) {
    carry(agreements_.take(now_, message), link);
  }
  // Ignores repeated greetings; queries and answers use their own connections, not links.
  void take(watch::LinkId, const Like<watch::Hello, watch::Answer, watch::Challenge, watch::Proof,
                                      watch::Admitted> auto&) {}

  void carry(const watch::Agreements::Step& step, std::optional<watch::LinkId> from = {});
  bool publish(const Watch::News& news, std::optional<watch::LinkId> from);
  void announce(Watch::News news);
  void lose(int rank, bool lives = false);
  void forget(watch::LinkId link);
  void send_all(const watch::Message& message, std::optional<watch::LinkId> except = {});
  void reconcile();
  void dial(int rank, Instant until);
  void report_ready();
  void start(const std::vector<watch::ListenPort>& ports, std::optional<watch::LinkId> from);
  void give_up(const Failure& failure, std::optional<watch::LinkId> from = {});
  void conclude_leave();

  std::vector<int> wanted() const;
  std::vector<int> wanted_of_first() const;
  int heir() const;
  int first_of_node(int node) const;
  bool is_there(int rank) const;
  bool is_linked(int rank) const { return link_count_[static_cast<size_t>(rank)] > 0; }
  bool is_local(int rank) const { return node(rank) == node(world_.me); }
  int node(int rank) const { return node_of_[static_cast<size_t>(rank)]; }
  bool knows_gone(int rank) const { return gone_[static_cast<size_t>(rank)]; }
  Instant set_up_deadline() const;
  Failure set_up_timeout() const;

  const Members world_;
  const Instant deadline_;
  std::vector<int> node_of_;  // Lowest rank of each rank's node.
  std::vector<int> node_size_;
  std::vector<uint16_t> ports_;

  // Valid during a step.
  Instant now_{};
  std::vector<Effect>* out_ = nullptr;

  std::map<watch::LinkId, int> links_;
  std::vector<int> link_count_;  // Entries in links_, by rank.
  std::set<int> dialling_;
  std::map<int, Doubt> doubts_;
  std::vector<bool> gone_;  // Died or left; by rank.
  std::vector<Watch::News> log_;
  std::set<std::string> known_;  // Updates other than died and left, encoded.
  watch::Agreements agreements_;
  watch::EndReasons reasons_;

  // State of the set-up.
  std::vector<int> first_dials_;
  std::set<int> awaited_;                  // Ranks yet to report to this one.
  std::vector<watch::ListenPort> places_;  // This rank's and those of ranks ready below it.
  bool reported_ = false;
  bool started_ = false;
  std::optional<Failure> failed_;

  bool leaving_ = false;
  bool heard_ = false;  // A rank that stays has passed the departure on.
  bool parted_ = false;
  Instant part_by_ = kNever;
};

}  // namespace muster::worker
