// Which ranks of the job are alive: one thread that learns at once when a rank died, left, was told
// to stop, or gave a group up, and tells the listeners. The ranks of a node hold a Unix connection
// to the node's first rank, the first ranks of nodes a TCP connection to rank 0; the kernel closes
// them when a process ends, however it ends, so nothing is polled and no time-out has to pass. News
// goes up that tree and down to all ranks.
//
// Owned by the job (one per process). Threads: its own; any thread may make the calls below.
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

class Watch {
 public:
  // Asks other ranks for their progress; each rank's watch answers, whatever its program does. One
  // thread, which blocks in wait() only.
  class Questions {
   public:
    struct Reply {
      enum class Kind : uint8_t {
        said,     // `text`.
        refused,  // No process listens there any more.
        unasked,  // This process has no descriptor left to ask it with.
      };
      int rank = -1;
      Kind kind = Kind::said;
      std::string text = {};
    };

    virtual ~Questions() = default;
    virtual void ask(int rank) = 0;
    // The replies since the last call; waits for one, at most until then.
    virtual std::vector<Reply> wait(Deadline until) = 0;
    // What the kernel of this node says of the rank's process; unknown elsewhere.
    virtual ProcessState state_of(int rank) const = 0;
  };

  // What all listeners hear: each once, in the order in which this process heard of it.
  struct News {
    enum class Kind : uint8_t {
      died,     // `rank` ended without destroy_process_group().
      left,     // `rank` called it.
      aborted,  // `rank` gave up the group `group_id` with `failure`.
      // `rank` is about to leave: what it has performed in its groups, and the messages that it
      // still waits for, again whenever these change (group_shutdown.h).
      performed,
      pending,
      // This process got SIGTERM and StopPolicy::end_calls holds. `failure` says stopped, or
      // peer_failed if the launcher's reason is known. Listeners hear of their own rank only.
      stopped,
      quiet,  // What remind() was called with; no news of other processes.
    };
    Kind kind = Kind::died;
    GlobalRank rank = {};
    std::string group_id = {};
    Failure failure = {};  // What blocked calls end with.
    std::vector<ShutdownNotice> performed = {};
    uint64_t number = 0;  // The number of `pending`, from 1: the latest counts.
    std::vector<PendingOfGroup> pending = {};

    friend bool operator==(const News&, const News&) = default;
  };
  using Listener = std::function<void(const News&)>;

  struct Options {
    Members world;
    std::string secret = {};  // The job's: who does not know it is no rank. The same for all ranks.
    // Keys of the watch alone; used during set-up only. A world of one needs none.
    std::optional<StoreClient> store = std::nullopt;
    Deadline deadline;
    // By rank, if known: no rank of this node is waited for after its process has ended.
    std::vector<ProcessLife> lives = {};
    StopPolicy on_sigterm = StopPolicy::end_calls;
    // Asks for the launcher's account of a failure when SIGTERM has come (at the agent's store: see
    // ask_agents_store() in failure_notice.h); may be empty. Called on a thread of its own.
    std::function<std::optional<Failure>()> ask_cause = {};
  };

  // Returns when all ranks are connected. Fails with timeout, naming the missing ranks; with
  // peer_failed, if one died meanwhile; with rendezvous or system.
  static Outcome<std::unique_ptr<Watch>> start(Options options);
  virtual ~Watch() = default;

  // The listener is called on the watch's thread, for earlier news at once on the calling thread.
  // It must be quick. After unsubscribe() has returned it is not called any more, so REQUIRES: the
  // caller of unsubscribe() holds no lock that the listener takes.
  virtual int subscribe(Listener listener) = 0;
  virtual void unsubscribe(int id) = 0;

  // Tells all other ranks this about this one (`rank` is filled in), equal news once. Returns when
  // it is sent (from a listener at once), so that it is not lost when the process ends next.
  virtual void tell(News news) = 0;
  // Has the listeners called with `news`, of kind quiet, after kLastMessage.
  virtual void remind(News news) = 0;
  // Tells all that this rank leaves, so that none declares it dead. Returns when that is sent.
  virtual void leave() = 0;

  // What this rank answers to others that ask for its progress: called on the watch's thread, never
  // after it was replaced by an empty function. Before it is set, the answer is empty.
  virtual void answer_with(std::function<std::string()> progress) = 0;
  // Null in a world of one.
  virtual std::unique_ptr<Questions> questions() = 0;

  // Whether SIGTERM came.
  virtual bool stop_requested() const = 0;
  // As if SIGTERM had come, but the process is not ended.
  virtual void request_stop() = 0;
};

}  // namespace muster::worker
