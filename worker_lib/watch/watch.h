// Tracks which ranks of the job are alive: one thread that notices at once when a rank died, left,
// was asked to stop, or gave a group up, and notifies the listeners. The ranks of a node hold a
// Unix connection to the node's first rank, the first ranks of nodes a TCP connection to rank 0;
// the kernel closes them when a process ends, however it ends, so nothing is polled and no time-out
// has to pass. Updates go up that tree and down to all ranks.
//
// Owned by a Job. Has its own thread; any thread may call the methods.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muster/init.h"
#include "rendezvous/store/store_client.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"
#include "worker_lib/watch/departure.h"
#include "worker_lib/watch/process_life.h"

namespace muster::worker {

// What the members of a group agree on; all must agree on the same.
enum class BallotKind : uint8_t { agree, shrink, meet, confirm };

// The answer of an agreement.
struct Verdict {
  uint64_t value = ~uint64_t{0};  // The bits that all voters have set.
  uint8_t kinds = 0;              // 1 << BallotKind of every voter.
  // That of the first voter that gave one; voters with value 0 go first.
  std::string text = {};
  std::vector<int> voters = {};  // Ranks of the job, ascending. Some may have died since.
  friend bool operator==(const Verdict&, const Verdict&) = default;
};

class Watch {
 public:
  // Queries other ranks' watches for progress. One thread, which blocks in wait() only.
  class Questions {
   public:
    struct Reply {
      enum class Kind : uint8_t {
        said,     // The answer is `text`.
        refused,  // No process listens there any more.
        unasked,  // This process has no descriptor left for the query.
      };
      int rank = -1;
      Kind kind = Kind::said;
      std::string text = {};
    };

    virtual ~Questions() = default;
    virtual void ask(int rank) = 0;
    // Returns the replies since the last call; waits until `until` if there is none.
    virtual std::vector<Reply> wait(Deadline until) = 0;
    // Returns the kernel's view of the rank's process; unknown on other nodes.
    virtual ProcessState state_of(int rank) const = 0;
  };

  // An update: every listener gets each once, in the order in which this process received them.
  struct News {
    enum class Kind : uint8_t {
      died,     // `rank` ended without destroy_process_group().
      left,     // `rank` left in order.
      aborted,  // `rank` gave up the group `group_id` with `failure`.
      // `rank` is about to leave: its performed operations, and (repeatedly) its pending messages.
      performed,
      pending,
      // This process got SIGTERM under StopPolicy::end_calls. `failure` has code stopped, or
      // peer_failed if the launcher's reason is known. Sent to all; listeners get only their own
      // rank's.
      stopped,
      quiet,  // A reminder by remind(), not an update from others.
    };
    Kind kind = Kind::died;
    GlobalRank rank = {};
    std::string group_id = {};
    Failure failure = {};  // Returned by blocked calls.
    std::vector<ShutdownNotice> performed = {};
    uint64_t number = 0;  // Sequence number of `pending`, from 1: the latest counts.
    std::vector<PendingOfGroup> pending = {};

    friend bool operator==(const News&, const News&) = default;
  };
  using Listener = std::function<void(const News&)>;

  // This rank's part in an agreement of a group; see agreements.h.
  struct Ballot {
    std::string group_id;
    std::vector<int> members;  // Ranks of the job.
    uint64_t number = 0;       // Counts the group's agreements, from 1.
    BallotKind kind = BallotKind::agree;
    uint64_t value = 0;
    std::string text = {};  // At most 4,096 bytes.
  };

  struct Options {
    Members world;
    std::string secret = {};  // The job's, by which its ranks authenticate each other.
    // Has a prefix for the watch; used during set-up only. Not needed in a world of one.
    std::optional<StoreClient> store = std::nullopt;
    Deadline deadline;
    // Processes by rank, if known: the wait for a rank of this node ends with its process.
    std::vector<ProcessLife> lives = {};
    // Asked now and then while ranks do not listen yet: why the set-up has to end; may be empty.
    Interrupted interrupted = {};
    StopPolicy on_sigterm = StopPolicy::end_calls;
    // Fetches the launcher's reason once SIGTERM has come (from the agents' store: see
    // ask_agents_store() in failure_notice.h); may be empty. Called on its own thread.
    std::function<std::optional<Failure>()> ask_cause = {};
  };

  // Returns when all ranks are connected. Fails with timeout, naming the missing ranks; with
  // peer_failed if one died meanwhile; with rendezvous or system.
  static Outcome<std::unique_ptr<Watch>> start(Options options);
  virtual ~Watch() = default;

  // The listener is called on the watch's thread; with earlier updates at once on the calling
  // thread. It must be quick. It is not called after unsubscribe() has returned, so REQUIRES: the
  // caller of unsubscribe() holds no lock that the listener takes.
  virtual int subscribe(Listener listener) = 0;
  virtual void unsubscribe(int id) = 0;

  // Sends this update about this rank (fills in `rank`) to all others; equal updates only once.
  // Returns when sent (from a listener at once), so that it is not lost if the process ends.
  virtual void tell(News news) = 0;
  // Calls the listeners with `news`, of kind quiet, after kLastMessage. Of equal reminders that are
  // due, the first and the last are kept.
  virtual void remind(News news) = 0;
  // Announces that this rank leaves, so that none declares it dead. Returns when that is sent.
  virtual void leave() = 0;

  // Sets the source of this rank's answers to queries: called on the watch's thread, never after it
  // was replaced by an empty function. Before it is set, answers are empty.
  virtual void answer_with(std::function<std::string()> progress) = 0;
  // Null in a world of one.
  virtual std::unique_ptr<Questions> questions() = 0;

  // Votes, and returns the verdict: the same on all ranks that get one. Fails with timeout, without
  // a message, and with the ranks that are missing if known; with stopped. The agreement goes on
  // after that, so this rank must not begin the group's next one. One call for a group at a time.
  virtual Outcome<Verdict> agree(const Ballot& ballot, Deadline deadline) = 0;

  // Returns the failure to report if the program has closed the watch's descriptors.
  virtual std::optional<Failure> deafness() const { return std::nullopt; }

  // True once SIGTERM came.
  virtual bool stop_requested() const = 0;
  // Acts as if SIGTERM had come, without ending the process.
  virtual void request_stop() = 0;
};

}  // namespace muster::worker
