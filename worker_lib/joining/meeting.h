// How the ranks of a job meet: they find the store (an agent's, or the one that rank 0 hosts), say
// there who they are, and read who the others are. What they say lies below a prefix that belongs
// to one initialisation: the restart count, and how often this rank has come to this store.
//
//   owner/R      the process that has rank R, as it describes itself
//   joins/R      (a counter) how often rank R has come; its value is the generation
//   G/state      "open WORLD_SIZE", or why this generation can never be complete
//   G/rank/R     what rank R says of itself
//   G/came       (a counter) how many have; the rank that makes it WORLD_SIZE gathers all records
//                into
//   G/everyone   one value, so that n ranks cost the store n answers and not n squared; "!" in
//                front is why there will be none
//   G/told/NODE  the rank of that node that has said which ranks it waits for
//   G/done       (a counter) how many need none of these any more; the rank that makes it
//                WORLD_SIZE removes them, so that a program may join and leave for ever
//
// Without a prefix, muster/run_id says which job the store belongs to.
//
// Blocking calls on the thread that initialises.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/store/store_client.h"
#include "worker_lib/failure.h"
#include "worker_lib/joining/host_store.h"
#include "worker_lib/joining/identity.h"
#include "worker_lib/joining/rank_record.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"
#include "worker_lib/watch/process_life.h"

namespace muster::worker {

// How this process reaches the job's store again. Any thread.
struct StoreAccess {
  std::string host;
  uint16_t port = 0;
  std::string prefix;
  // Where this process hosts it; a retired one is not held back.
  std::weak_ptr<HostStore> own;
  bool hosted_here = false;

  // A new connection whose keys are below the prefix. Fails with rendezvous.
  Outcome<StoreClient> connect(Deadline deadline) const;

 private:
  Outcome<StoreClient> connect_again(Deadline deadline) const;
};

// What this process, as `rank`, says of itself when the ranks meet.
RankRecord own_record(int rank, std::string address);

struct Met {
  Members world;
  std::vector<ProcessLife> lives = {};  // By rank; none in a world of one.
  StoreAccess access;
  std::optional<StoreClient> store;   // Connected, below access.prefix; none in a world of one.
  std::shared_ptr<HostStore> hosted;  // Null: somebody else serves it, or nobody has to.
  // The same connection, where the keys of all generations are, and which of them this one is.
  std::optional<StoreClient> root = std::nullopt;
  int64_t generation = 0;
};

struct MeetingOptions {
  Deadline deadline;
  // What messages count the time from.
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  // GLOO_SOCKET_IFNAME: whose address to give to the others; empty: that which reaches the store.
  std::string interface = {};
  // A rank that has waited for so long says once whom it waits for, one line; by default on
  // standard error. The time-out of half an hour is long for somebody who looks at a screen.
  std::chrono::milliseconds patience = std::chrono::seconds{10};
  std::function<void(const std::string& line)> say = {};
};

// Returns when all ranks have come. Fails with timeout and the ranks that did not; with environment
// where ranks contradict each other, a rank is there twice, or the store cannot be hosted; with
// rendezvous where the store of an agent is not there.
Outcome<Met> meet(const Identity& self, const MeetingOptions& options);

// This rank needs no key of the meeting any more, nor of what it has set up with its help; those of
// groups stay. The last rank that says so removes them, and what is left of earlier generations.
// What goes wrong here costs the store some memory and nobody anything else.
void forget_meeting(const Met& met);

}  // namespace muster::worker
