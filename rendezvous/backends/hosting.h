// Decides for one node which node hosts its job: where to connect, when to take the host's place,
// and when to give it up. Serves all ways to meet: an endpoint, which itself proves which node may
// listen there (claim.h), and the keepers (keeper.h), a file or etcd. Pure: the finder around it
// connects, listens and asks the keeper.
//
//   away ─▶ looking ─▶ calling ─▶ taking ─▶ hosting
//     ▲        │          │          │         │
//     └────────┴──────────┴──────────┴─────────┘
//     no host to call, an answer, another node was faster, the keeper names another host
//
// Succession (leases as in Gray and Cheriton 1989): a member of the newest round may follow a host
// once nothing of a round is alive on it and the host's address refuses it or the host's lease is
// over; any other node only two leases after that, so that a node that merely cannot reach the host
// never takes the job from those that can. Before a first round any node may, once the lease is
// over. A refusal by the host's own machine proves its death.
//
// A round forms only by one compare-and-set of the job's record, on condition of the host's own
// record and the round before. A host that loses its keeper forms none, but keeps the one it has;
// when the keeper is back and names another host, it steps down.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/backends/host_record.h"
#include "rendezvous/backends/keeper.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

namespace hosting {

// ---- events. Each Look, Await, Take, Beat, Write and Leave is answered once; but a Call, and a
// Take without a keeper, is not answered once a Dropped has come.

// This node wants a connection to the host.
struct Wanted {
  bool reaped = true;  // Nothing of a round is alive on this node.
};
struct Dropped {};  // The connection is not wanted any more.
struct Looked {
  Result<Keeper::Seen> seen;
};
struct Awaited {};
struct Called {
  enum class How { answered, refused, silent, no_name };
  How how = How::silent;
  Error error;
};
// What answered the last call is not the host of the job, or hung up without an answer.
struct Doubted {
  bool is_another = false;
};
struct Taken {
  // not_ours: only another machine can listen at the endpoint. failed: the outcome is unknown.
  enum class How { won, lost, not_ours, failed };
  How how = How::failed;
  Error error;
};
struct Beaten {
  Result<Keeper::Beat> beat;
};
// Our host wants to form this round.
struct RoundWanted {
  JobRecord job;
};
struct Written {
  Result<bool> written;
};
// Our host wants to end the job like this.
struct Ended {
  membership::End ending;
};
struct Retired {};  // Our host has nothing more to do.
struct Left {};
struct Tick {};

// ---- effects

struct Look : Nothing {};
struct Await {
  Keeper::Seen seen;
  Duration patience{};
  friend bool operator==(const Await&, const Await&) = default;
};
struct Call {
  HostRecord host;  // Empty at an endpoint, which has no record.
  friend bool operator==(const Call&, const Call&) = default;
};
// Listen, then take the place of what was seen.
struct Take {
  Keeper::Seen seen;
  friend bool operator==(const Take&, const Take&) = default;
};
// The answer to Wanted: the connection of the last Call is one to the host.
struct Found : Nothing {};
// The negative answer to Wanted.
struct NotFound {
  Error error;
  bool refused = false;                   // Nothing listens there: the host is gone.
  std::optional<membership::End> ending;  // The job is over.
  friend bool operator==(const NotFound&, const NotFound&) = default;
};
// This node hosts now and goes on from `job`; answers Wanted.
struct Host {
  JobRecord job;
  int expected = 0;  // Nodes of the job's round that may still come; 0: unknown.
  friend bool operator==(const Host&, const Host&) = default;
};
struct Beat : Nothing {};
struct Write {
  JobRecord before;
  JobRecord now;
  Duration remember{};
  friend bool operator==(const Write&, const Write&) = default;
};
// The round may begin.
struct RoundGranted {
  membership::Epoch epoch = 0;
  friend bool operator==(const RoundGranted&, const RoundGranted&) = default;
};
// The nodes may learn how the job ended; no other round of it can form.
struct EndingGranted : Nothing {};
// Our host is replaced: its agents must look for the other one.
struct StepDown : Nothing {};
// Remove our record.
struct Leave : Nothing {};
// Nothing of ours is with the keeper.
struct Retire : Nothing {};
struct Say {  // A line for the user.
  std::string text;
  friend bool operator==(const Say&, const Say&) = default;
};

}  // namespace hosting

class Hosting {
 public:
  using Event = std::variant<hosting::Wanted, hosting::Dropped, hosting::Looked, hosting::Awaited,
                             hosting::Called, hosting::Doubted, hosting::Taken, hosting::Beaten,
                             hosting::RoundWanted, hosting::Ended, hosting::Written,
                             hosting::Retired, hosting::Left, hosting::Tick>;
  using Effect = std::variant<hosting::Look, hosting::Await, hosting::Call, hosting::Take,
                              hosting::Found, hosting::NotFound, hosting::Host, hosting::Beat,
                              hosting::Write, hosting::RoundGranted, hosting::EndingGranted,
                              hosting::StepDown, hosting::Leave, hosting::Retire, hosting::Say>;

  struct Options {
    bool has_keeper = true;           // false: an endpoint.
    bool keeper_ends_leases = false;  // etcd; the readers of a file have to watch the beat.
    std::string place;  // The endpoint, the path, or the cluster and the id: for messages.
    std::optional<bool> may_host;  // nullopt: any node that can; true: only this one.
    membership::AgentId agent;     // This process's.
    std::string machine;           // See HostRecord.
    Duration lease = std::chrono::seconds(4);
    Duration beat_every = std::chrono::seconds(1);
    Duration retry_every = std::chrono::milliseconds(200);  // While the keeper does not answer.
    Duration patience = std::chrono::seconds(1);            // How long to wait for a host.
    Duration success_kept = std::chrono::minutes(10);
  };

  explicit Hosting(Options options) : options_(std::move(options)) {}

  // Appends the effects in the order to perform them.
  void step(Instant now, const Event& event, std::vector<Effect>& out);
  Instant next_deadline() const;

 private:
  enum class Stage { away, looking, awaiting, calling, taking, hosting, retired };
  // What the keeper's one thread is doing.
  enum class Errand { none, look, await, take, beat, write, leave };

  void on(Instant now, const hosting::Wanted& event);
  void on(Instant now, const hosting::Dropped& event);
  void on(Instant now, const hosting::Looked& event);
  void on(Instant now, const hosting::Awaited& event);
  void on(Instant now, const hosting::Called& event);
  void on(Instant now, const hosting::Doubted& event);
  void on(Instant now, const hosting::Taken& event);
  void on(Instant now, const hosting::Beaten& event);
  void on(Instant now, const hosting::RoundWanted& event);
  void on(Instant now, const hosting::Written& event);
  void on(Instant now, const hosting::Ended& event);
  void on(Instant now, const hosting::Retired& event);
  void on(Instant now, const hosting::Left& event);
  void on(Instant now, const hosting::Tick& event);

  // The way to a host.
  void look() { stage_ = Stage::looking; }
  void send_look(Instant now);
  void learn(Instant now, const Keeper::Seen& seen);
  void consider(Instant now);
  void call();
  void follow(Instant now, Error why_not, bool refused);
  void wait_or_give_up(Instant now, Error why_not, bool refused);
  void take();
  void not_found(Error error, bool refused = false);
  void job_is_over();
  bool is_member() const;
  bool may_follow(bool refused) const;
  std::optional<Instant> gone_since() const;

  // As the host.
  void begin_hosting(Instant now);
  void serve(Instant now);
  void look_as_host(Instant now, const Keeper::Seen& seen);
  void hear(Instant now);
  void miss(Instant now, const Error& error);
  void grant();
  void step_down();
  template <typename One>
  void send(Errand errand, One effect);

  const Options options_;
  Stage stage_ = Stage::away;
  Errand errand_ = Errand::none;
  std::vector<Effect>* out_ = nullptr;  // Only within step().

  // While away, looking, calling and taking.
  bool reaped_ = true;
  bool tried_again_ = false;  // Set once another node was faster.
  bool has_waited_ = false;
  std::optional<Error> why_not_;  // Why the last call failed, at an endpoint.
  bool why_not_refused_ = false;
  std::optional<Keeper::Seen> seen_;
  std::optional<Instant> without_since_;  // When the record of a host was first missing.
  // The host's newest beat, and when it was new to us.
  struct Sign {
    uint64_t beat = 0;
    Instant at{};
  } sign_;
  // A host's silence is measured by looks alone, since a call may take longer than a lease. Silence
  // counts up to the time when the newest look was asked for; what it shows is not older.
  Instant asked_at_{};
  Instant looked_at_{};             // When the look that showed `seen_` was asked for.
  uint64_t called_instance_ = 0;    // The host's that was called last.
  uint64_t replaced_instance_ = 0;  // At its address something else answers.
  uint64_t mute_instance_ = 0;      // It hung up without an answer.
  bool endpoint_doubted_ = false;

  // While hosting.
  JobRecord job_;                     // The keeper's, as far as we know.
  std::optional<JobRecord> wanted_;   // The round or ending to write next.
  std::optional<JobRecord> writing_;  // A write of unknown outcome, to be resolved first.
  bool look_due_ = false;
  bool take_due_ = false;
  Instant beat_at_ = kNever;
  Instant retry_at_ = kNever;
  Instant heard_at_{};  // When the keeper last answered.
  bool miss_said_ = false;
  bool retiring_ = false;
};

}  // namespace muster
