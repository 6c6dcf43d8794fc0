// The watch's thread: performs the effects of the WatchTree on sockets, and passes it their events.
// Owns all sockets, the thread, and the WatchTree. SIGTERM is handled by watch_stop.h.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/base/time.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"
#include "worker_lib/watch/lifeline.h"
#include "worker_lib/watch/watch.h"
#include "worker_lib/watch/watch_sockets.h"
#include "worker_lib/watch/watch_tree.h"
#include "worker_lib/watch/watch_wire.h"

namespace muster::worker {

class WatchLoop {
 public:
  struct Options {
    Members world;
    watch::WatchKeys keys;
    watch::GuardedFd unix_listener;  // Not open in a world of one.
    watch::GuardedFd tcp_listener;   // Open if there are several nodes.
    uint16_t port = 0;               // The TCP listener's.
    uint16_t root_port = 0;          // Rank 0's.
    Deadline deadline;
    // Polled for ranks not linked yet, to notice a death before that; may be empty.
    std::function<bool(int rank)> is_over;
    std::function<void(const watch::Announce&)> announce;  // Called on the loop's thread.
    std::function<std::string()> progress;                 // Answers a Hello that asks; likewise.
    // The agreements' news for this process; likewise.
    std::function<void(const watch::Decision&)> decided;
    std::function<void(const watch::Missing&)> missing;
    // A further descriptor and a timer, with the function to call for both; see watch_stop.h.
    int extra_fd = -1;
    std::function<Instant()> extra_deadline;
    std::function<void(Instant now)> on_extra;
  };

  // Fails with system: the kernel refuses descriptors.
  static Outcome<std::unique_ptr<WatchLoop>> make(Options options);
  WatchLoop(WatchLoop&&) = delete;
  ~WatchLoop();

  // Starts the thread; returns once all ranks are linked. Fails: timeout, peer_failed or system.
  Outcome<> start();
  // Ends start(); its first outcome counts.
  void settle(Outcome<> outcome);
  // Returns when sent, or after a tenth of a second; on the loop's thread at once.
  void tell(const Watch::News& news);
  // Performs the event soon. Returns the least number of events performed by then.
  uint64_t post(WatchTree::Event event);
  // Returns when the others know, at most after kPart.
  void leave();
  // Makes the loop call on_extra soon; no effect after stop().
  void wake();
  // Ends the thread and closes all links at once, without an announcement.
  void stop();

  // Returns the failure to report if the program has closed the loop's descriptors.
  std::optional<Failure> deafness(bool is_known = false) const;

  const watch::WatchKeys& keys() const { return options_.keys; }
  // Ports at which the ranks listen for other nodes. REQUIRES: start() has succeeded.
  const std::vector<uint16_t>& ports() const { return ports_; }

 private:
  using LinkId = watch::LinkId;

  static constexpr uint64_t kUnixTag = 3;
  static constexpr uint64_t kTcpTag = 4;

  enum class Stage : uint8_t { connecting, greeting, linked };
  struct Link {
    watch::GuardedFd socket;
    Stage stage = Stage::greeting;
    int rank = -1;         // -1: accepted, and no Hello yet.
    bool dialled = false;  // True if this rank dialled.
    uint16_t port = 0;     // The Dial's.
    bool over_unix = false;
    bool asks = false;           // A query.
    bool is_challenged = false;  // The listener's Challenge came.
    LinkTerms terms;
    bool wants_to_write = false;
    int lends = -1;     // This process's lifeline, to be sent along with what is sent next.
    UniqueFd borrowed;  // The peer's.
    watch::Decoder input;
    std::string output;
    Instant until = kNever;  // Deadline until linked.
  };
  // A link that ended while its process may still exist: see end_of().
  struct Ending {
    watch::GuardedFd process;
    int pid = 0;
    Instant until{};
  };
  // A dial to be tried again.
  struct Retry {
    watch::Dial dial;
    Instant at{};
  };

  WatchLoop(Options options, watch::GuardedFd epoll, watch::GuardedFd wake);
  Outcome<> look_for_input();
  // epoll_ctl(2); `tag` comes back with the events.
  bool control(int operation, int fd, uint64_t tag, uint32_t events) const;
  void run();
  void look_for_ended(Instant now);
  void step(const WatchTree::Event& event);
  void pump();
  void perform(const WatchTree::Effect& effect);
  void wait_once();
  Instant next_deadline() const;
  void on_time();
  void on_event(uint64_t tag, uint32_t events);
  void take_posted();

  // ---- links (watch_loop_links.cc)
  void begin_dial(const watch::Dial& dial);
  void accept(bool over_unix);
  void pause_accepting(int error);
  void listen_for(uint32_t events);
  void surrender(const std::string& attempt, int error);
  LinkId add(Link link);
  void on_link(LinkId id, uint32_t events);
  void on_connected(LinkId id, Link& link);
  void read(LinkId id);
  void take_messages(LinkId id);
  bool greet(LinkId id, const watch::Message& message);
  bool take(LinkId id, const watch::Hello& hello);
  bool take(LinkId id, const watch::Challenge& challenge);
  bool take(LinkId id, const watch::Proof& proof);
  bool take(LinkId id, const watch::Admitted&);
  bool take(LinkId, const auto&) { return false; }
  void admit(LinkId id);
  bool is_acceptable(const Link& link, const watch::Hello& hello) const;
  void send(Link& link, const watch::Message& message);
  void flush(LinkId id, Link& link);
  void drop(LinkId id);
  void abandon(LinkId id, watch::Silence silence);
  uint16_t port_of(int rank, uint16_t port) const;
  void on_cut(LinkId id);
  void end_of(LinkId id, Duration patience);
  void conclude_ending(LinkId id, bool lives);
  void expire_links(Instant now);

  Options options_;
  WatchTree tree_;
  watch::GuardedFd epoll_, wake_;
  std::optional<Lifeline> lifeline_;        // Held by the loop's thread.
  std::optional<LifelineWatch> lifelines_;  // Those of the ranks of this node, by link.
  std::map<LinkId, Link> links_;
  std::map<LinkId, Ending> endings_;
  std::map<int, Retry> retries_;   // Indexed by rank.
  Instant accept_again_ = kNever;  // Accepting pauses until then.
  Instant next_look_ = kNever;     // Next check for ended ranks.
  LinkId next_link_ = 16;          // Lower numbers are the loop's own tags.
  size_t strangers_ = 0;           // Unauthenticated accepted links.
  std::vector<WatchTree::Event> inbox_;
  bool pumping_ = false;
  bool quit_ = false;

  std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  std::vector<WatchTree::Event> posted_;
  std::vector<LinkId> cut_;  // Links to processes that may be dying.
  uint64_t in_hand_ = 0;     // Taken from posted_, in progress.
  uint64_t done_ = 0;
  bool quit_wanted_ = false;
  bool parted_ = false;
  std::optional<Outcome<>> started_;
  std::vector<uint16_t> ports_;  // Constant once started_.

  std::thread thread_;
};

}  // namespace muster::worker
