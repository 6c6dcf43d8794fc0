// Who of the job lives: one thread that hears at once when a rank died, left, was told to stop, or
// gave a group up, and tells whoever listens. The ranks of a node hold a Unix connection to the
// node's first rank, the first ranks of nodes a TCP connection to rank 0; the kernel closes them
// when a process ends, however it ends, so nothing is polled and no time-out is waited for. News go
// up that tree and down to everybody.
//
// Owned by the job (one per process). Threads: its own; the calls below from any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "muster/init.h"
#include "rendezvous/store/store_client.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"
#include "worker_lib/watch/process_life.h"

namespace muster::worker {

class Watch {
 public:
  // Asks other ranks where they are; each has its watch answer whatever its program does. One
  // thread, which blocks in wait() only.
  class Questions {
   public:
    struct Reply {
      enum class Kind : uint8_t {
        said,     // `text`.
        refused,  // Nobody listens there any more.
        unasked,  // This process has no descriptor left to ask it with.
      };
      int rank = -1;
      Kind kind = Kind::said;
      std::string text = {};
    };

    virtual ~Questions() = default;
    virtual void ask(int rank) = 0;
    // What has come since the last call: waits for something, at most until then.
    virtual std::vector<Reply> wait(Deadline until) = 0;
    // What the kernel of this node says of its process; unknown elsewhere.
    virtual ProcessState state_of(int rank) const = 0;
  };

  // What everybody hears. Each once, in the order in which this process heard of it.
  struct News {
    enum class Kind : uint8_t {
      died,     // `rank` ended without destroy_process_group().
      left,     // `rank` called it.
      aborted,  // `rank` gave up the group `group_id` with `failure`.
      // This process got SIGTERM and StopPolicy::end_calls holds. `failure` says stopped, or
      // peer_failed where the launcher's reason is known. Listeners hear of their own rank only.
      stopped,
    };
    Kind kind = Kind::died;
    GlobalRank rank;
    std::string group_id = {};
    Failure failure = {};  // What blocked calls end with; of every kind.

    friend bool operator==(const News&, const News&) = default;
  };
  using Listener = std::function<void(const News&)>;

  struct Options {
    Members world;
    // Keys of the watch alone; used during set-up only. A world of one needs none.
    std::optional<StoreClient> store = std::nullopt;
    Deadline deadline;
    // By rank, where known: a rank of this node whose life is over is not waited for.
    std::vector<ProcessLife> lives = {};
    StopPolicy on_sigterm = StopPolicy::end_calls;
    // Where to ask for the job's own account of a failure when SIGTERM came (the agent's: see
    // ask_agents_store() in failure_notice.h); may be empty. Called on a thread of its own.
    std::function<std::optional<Failure>()> ask_cause = {};
  };

  // Returns when all ranks are connected. Fails with timeout, naming the ranks that did not come;
  // with peer_failed, when one died meanwhile; with system.
  static Outcome<std::unique_ptr<Watch>> start(Options options);
  virtual ~Watch() = default;

  // The listener is called on the watch's thread; what happened before is told at once, from here.
  // It must be quick. After unsubscribe() returned it is not called any more, so REQUIRES: who
  // unsubscribes holds no lock that the listener takes.
  virtual int subscribe(Listener listener) = 0;
  virtual void unsubscribe(int id) = 0;

  // Tells all other ranks that this one gave up the group. Once for each message. Returns when it
  // was sent (from a listener at once), so that it is not lost when the process ends next.
  virtual void tell_aborted(const std::string& group_id, const Failure& failure) = 0;
  // Tells all that this rank leaves; then nobody calls it dead. Returns when that was sent.
  virtual void leave() = 0;

  // What this rank answers who asks where it is: called on the watch's thread, never after it was
  // replaced by nothing. Before it is set nobody is answered.
  virtual void answer_with(std::function<std::string()> progress) = 0;
  // Null in a world of one.
  virtual std::unique_ptr<Questions> questions() = 0;

  // Whether SIGTERM came.
  virtual bool stop_requested() const = 0;
  // As if SIGTERM had come, but the process is not ended.
  virtual void request_stop() = 0;
};

}  // namespace muster::worker
