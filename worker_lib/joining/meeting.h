// How the ranks of a job meet: they find the store (an agent's, or the one that rank 0 hosts),
// describe themselves there, and read the descriptions of the others. Their keys are below a prefix
// that belongs to one initialisation: the restart count, and how often this rank has joined here.
//
//   owner/R      the process that has rank R, as it describes itself
//   joins/R      (a counter) how often rank R has joined; its value is the generation
//   G/state      "open WORLD_SIZE", or why this generation can never be complete
//   G/rank/R     rank R's description of itself
//   G/came       (a counter) how many have arrived; the rank that makes it WORLD_SIZE gathers all
//                records into
//   G/everyone   one value, so that n ranks cost the store n answers and not n squared; "!" in
//                front, with the reason, if there will be none
//   G/told/NODE  the rank of that node that has printed which ranks it waits for
//   G/done       (a counter) how many need none of these any more; the rank that makes it
//                WORLD_SIZE removes them, so that a program may join and leave without end
//
// Without a prefix, muster/run_id says which job the store belongs to. Ranks that meet through a
// store of the program's have all their keys below muster/N/, N being a number that only they have.
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
  std::string prefix = {};
  // Set if this process hosts the store; weak, so that a retired one is not kept.
  std::weak_ptr<HostStore> own = {};
  bool hosted_here = false;

  // A new connection whose keys are below the prefix. Fails with rendezvous.
  Outcome<StoreClient> connect(Deadline deadline) const;
};

// What this process, as `rank`, says of itself when the ranks meet.
RankRecord own_record(int rank, std::string address);

struct Met {
  Members world;
  std::vector<ProcessLife> lives = {};  // By rank; empty in a world of one.
  std::string secret = {};              // The job's; empty in a world of one.
  StoreAccess access;
  std::optional<StoreClient> store;   // Connected, below access.prefix; none in a world of one.
  std::shared_ptr<HostStore> hosted;  // Null: this process does not host the store.
  // The same connection with the prefix of all generations, and the number of this one.
  std::optional<StoreClient> root = std::nullopt;
  int64_t generation = 0;
  bool is_last = false;  // No generation follows.
  // The same connection without any prefix, if it is one to the server of a program's store.
  std::optional<StoreClient> to_server = std::nullopt;
};

struct MeetingOptions {
  Deadline deadline;
  // The start of the time that messages report.
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  // GLOO_SOCKET_IFNAME: the interface whose address others get; empty: that towards the store.
  std::string interface = {};
  // A rank that has waited this long prints one line, once, that names the ranks it waits for; by
  // default on standard error. The time-out of half an hour is long for a user at a screen.
  std::chrono::milliseconds patience = std::chrono::seconds{10};
  std::function<void(const std::string& line)> say = {};
};

// Returns when all ranks have arrived. Fails with timeout and the ranks that are missing; with
// environment if ranks contradict each other, two processes have the same rank, or the store cannot
// be hosted; with rendezvous if an agent's store cannot be reached.
Outcome<Met> meet(const Identity& self, const MeetingOptions& options);

// Reports that this rank needs no key of the meeting any more, nor of what it has set up with its
// help, except those of groups. The last rank to report removes them, and what earlier generations
// left behind. An error here only costs the store some memory.
void forget_meeting(const Met& met);

}  // namespace muster::worker
