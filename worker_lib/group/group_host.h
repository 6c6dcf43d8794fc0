// What the groups of one job share: filled in by the job before it makes the world, and handed to
// Group::make_world().
//
//   auto host = std::make_shared<GroupHost>();
//   host->world = members;                      // ... and the rest
//   Outcome<std::shared_ptr<Group>> world = Group::make_world(host, deadline);
//   ...
//   host->close_groups();                       // destroy_process_group(): then watch->leave()
//
// The fields do not change once the world is made; the calls below may come from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "muster/init.h"
#include "rendezvous/store/store_client.h"
#include "worker_lib/backends/backend.h"
#include "worker_lib/failure.h"
#include "worker_lib/failure_reports.h"
#include "worker_lib/group/group_shutdown.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"
#include "worker_lib/stragglers/rank_progress.h"
#include "worker_lib/watch/watch.h"

namespace muster::worker {

class Group;

using BackendMaker = std::function<Outcome<std::unique_ptr<GroupBackend>>(GroupSetup)>;

// How to make each backend. An empty one: this build has none.
struct BackendMakers {
  BackendMaker cpu;
  BackendMaker nccl;
  BackendMaker gloo;
  // Whether NCCL and a GPU can be used here, and if not, why.
  std::function<bool(std::string* why)> nccl_available;
};

// Those of backend.h and init.h.
BackendMakers real_backends();

class GroupHost {
 public:
  GroupHost() = default;
  GroupHost(const GroupHost&) = delete;
  GroupHost& operator=(const GroupHost&) = delete;
  ~GroupHost();

  Members world;
  // A new connection to the job's store (groups are made by several threads at the same time, and
  // monitored_barrier() keeps one), with the prefix of this initialisation. Not called in a world
  // of one unless GPU memory is used.
  std::function<Outcome<StoreClient>(Deadline)> connect_store;
  // What this rank has told its program; null: nothing is known of that (ranks that are threads).
  const FailureReports* reports = nullptr;
  // Which rank serves the store; none: somebody outside of the job.
  std::optional<GlobalRank> store_host = std::nullopt;
  std::shared_ptr<Watch> watch;  // None: nobody is watched (tests). Let go of by close_groups().
  StopPolicy on_sigterm = StopPolicy::end_calls;
  std::chrono::milliseconds timeout = std::chrono::minutes{30};
  Backend backend = Backend::automatic;
  int cuda_device = 0;
  BackendMakers makers;

  // Closes all groups that are still there (Group::close()), the world last. Blocks until their
  // work under way is done, at most until its deadlines, and until the other ends of what is not
  // done are leaving as well.
  void close_groups();

  // ---- for groups

  std::shared_ptr<Watch> watch_now();
  void add(std::weak_ptr<Group> group);
  // Takes a group that no handle holds any more, and keeps it until the work that was begun on it
  // is done.
  void retire(std::unique_ptr<Group> group);
  // Looks at all groups, one after the other, on the calling thread, which may be the watch's or
  // one of a group: should the program let go of a group meanwhile, it is kept, until the next one
  // is made or all are closed, rather than destroyed here. `look` must not visit in turn.
  void visit(const std::function<void(Group&)>& look);
  // Where this rank is in all its groups.
  RankProgress progress();
  // From 1: how often this process has been told to make a group of the ranks with this digest.
  uint64_t next_number(const std::string& ranks_digest);

 private:
  std::vector<std::unique_ptr<Group>> idle_ones();
  void note_retired(const Group& group);  // REQUIRES: mutex_ is held.
  void wait_for_transfers(const std::vector<Group*>& groups, Watch* told);

  std::mutex visiting_;  // Taken before mutex_.
  std::mutex mutex_;
  std::thread::id visitor_;                   // Who visits; nobody: none.
  bool closed_ = false;                       // close_groups() is through.
  std::vector<std::weak_ptr<Group>> groups_;  // In the order in which they were made.
  std::vector<std::unique_ptr<Group>> lingering_;
  std::deque<ShutdownNotice> retired_;  // Of the last groups that went.
  std::map<std::string, uint64_t> numbers_;
};

}  // namespace muster::worker
