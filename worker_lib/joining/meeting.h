// The meeting of a job's ranks: they find the store (an agent's, or the one that rank 0 hosts),
// describe themselves there, and read the others' descriptions. Their keys have the prefix of one
// initialisation: the restart count, and how often this rank has joined here.
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
// muster/run_id, without a prefix, names the job that the store belongs to. Ranks that meet through
// a store of the program have all their keys below muster/N/, N being a random number that only
// these ranks have.
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

// Reconnects this process to the job's store. Any thread.
struct StoreAccess {
  std::string host;
  uint16_t port = 0;
  std::string prefix = {};
  // Set if this process hosts the store; weak, so that a retired one is not kept.
  std::weak_ptr<HostStore> own = {};
  bool hosted_here = false;

  // Opens a new connection with the prefix. Fails with rendezvous.
  Outcome<StoreClient> connect(Deadline deadline) const;
};

// Returns this process's description of itself as `rank`.
RankRecord own_record(int rank, std::string address);

struct Met {
  Members world;
  std::vector<ProcessLife> lives = {};  // Indexed by rank; empty in a world of one.
  std::string secret = {};              // The job's secret; empty in a world of one.
  StoreAccess access;
  std::optional<StoreClient> store;   // Has access.prefix; none in a world of one.
  std::shared_ptr<HostStore> hosted;  // Null: not hosted here.
  // The same connection with the prefix of all generations; the number of this one.
  std::optional<StoreClient> root = std::nullopt;
  int64_t generation = 0;
  bool is_last = false;  // No generation follows.
  // The same connection without any prefix, if to the server of a program's store.
  std::optional<StoreClient> to_server = std::nullopt;
};

struct MeetingOptions {
  Deadline deadline;
  // Start of the time that messages report.
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  // GLOO_SOCKET_IFNAME: the interface whose address others get; empty: the one towards the store.
  std::string interface = {};
  // A rank that has waited this long prints one line, once, with the ranks it waits for (default:
  // to standard error), since a time-out of half an hour is long for a user at a screen.
  std::chrono::milliseconds patience = std::chrono::seconds{10};
  std::function<void(const std::string& line)> say = {};
  // Asked now and then: why the ranks cannot meet any more; may be empty.
  Interrupted interrupted = {};
};

// Returns when all ranks have arrived; blocks the calling thread. Fails with timeout and the
// missing ranks; with environment if ranks contradict each other, two processes have the same rank,
// or the store cannot be hosted; with rendezvous if an agent's store cannot be reached.
Outcome<Met> meet(const Identity& self, const MeetingOptions& options);

// Reports that this rank needs no keys of the meeting and the set-up any more. The last one removes
// them, except those of groups, and earlier generations'. An error only costs the store memory.
void forget_meeting(const Met& met);

}  // namespace muster::worker
