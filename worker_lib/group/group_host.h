// State that the groups of one job share: the job fills it in before it makes the world.
//
//   auto host = std::make_shared<GroupHost>();
//   host->world = members;                      // ... and the rest
//   Outcome<std::shared_ptr<Group>> world = Group::make_world(host, deadline);
//   ...
//   host->close_groups();                       // destroy_process_group(): then watch->leave()
//
// The public fields do not change once the world is made. Any thread may call the methods.
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
#include "worker_lib/recorder/recorder.h"
#include "worker_lib/stragglers/rank_progress.h"
#include "worker_lib/watch/watch.h"

namespace muster::worker {

class Group;
class Job;

using BackendMaker = std::function<Outcome<std::unique_ptr<GroupBackend>>(GroupSetup)>;

// Factories of the backends; empty: not in this build.
struct BackendMakers {
  BackendMaker cpu;
  BackendMaker nccl;
  BackendMaker gloo;
  // True if NCCL and a GPU can be used here; else sets `why`.
  std::function<bool(std::string* why)> nccl_available;
};

class GroupHost {
 public:
  GroupHost() = default;
  GroupHost(const GroupHost&) = delete;
  GroupHost& operator=(const GroupHost&) = delete;
  ~GroupHost();

  Members world;
  std::string world_name = std::string(kWorldGroup);
  std::string secret;  // The job's secret; see link_proof.h.
  // Opens a new connection to the job's store, with the prefix of this initialisation (several
  // threads may make groups concurrently, and monitored_barrier() keeps a connection). Not called
  // in a world of one unless GPU memory is used.
  std::function<Outcome<StoreClient>(Deadline)> connect_store;
  // Failures that this rank has reported to its program; null: unknown.
  const FailureReports* reports = nullptr;
  // The rank that serves the store; nullopt: an outside process does.
  std::optional<GlobalRank> store_host = std::nullopt;
  std::shared_ptr<Watch> watch;  // Null: none (tests). Reset by close_groups().
  Recorder* recorder = nullptr;  // Null: this rank's calls are not recorded.
  std::chrono::milliseconds timeout = std::chrono::minutes{30};
  Backend backend = Backend::automatic;
  int cuda_device = 0;
  BackendMakers makers;

  // Closes all groups that still exist (Group::close()), the world last. Blocks until their work in
  // flight is complete or past its deadline, or until the peers that it needs are leaving too.
  void close_groups();

  // ---- for groups

  std::shared_ptr<Watch> watch_now();
  void add(std::weak_ptr<Group> group);
  // Keeps a group that has no handle left until the work begun on it is complete.
  void retire(std::unique_ptr<Group> group);
  // Calls `look` for each group in turn, on the calling thread, which may be the watch's or a
  // group's. A group whose last handle is dropped meanwhile is not destroyed here, but kept until
  // the next group is made or all are closed. `look` must not call visit().
  void visit(const std::function<void(Group&)>& look);
  // Returns this rank's progress in all its groups.
  RankProgress progress();
  // Keeps the job of a group that was made by shrinking one of these, until they are left.
  void keep(std::shared_ptr<Job> shrunk);
  std::vector<std::shared_ptr<Job>> shrunk_jobs();
  // Counts, from 1, the groups that this process made of the ranks with this digest.
  uint64_t next_number(const std::string& ranks_digest);

 private:
  std::vector<std::unique_ptr<Group>> idle_ones();
  void note_retired(const Group& group);  // REQUIRES: mutex_ is held.
  void wait_for_transfers(const std::vector<Group*>& groups, Watch* told);

  std::mutex visiting_;  // Taken before mutex_.
  std::mutex mutex_;
  std::thread::id visitor_;                   // The thread in visit(); default: none.
  bool closed_ = false;                       // close_groups() is done.
  std::vector<std::weak_ptr<Group>> groups_;  // Oldest first.
  std::vector<std::unique_ptr<Group>> lingering_;
  std::deque<ShutdownNotice> retired_;  // Notices of the latest groups.
  std::map<std::string, uint64_t> numbers_;
  std::vector<std::shared_ptr<Job>> shrunk_;
};

}  // namespace muster::worker
