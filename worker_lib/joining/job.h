// The job as this process knows it: its own place, the other ranks, and where they meet. One at a
// time per process (current_job()): init_process_group() makes it and destroy_process_group()
// releases it, but any other holder of the pointer keeps it alive. A group made by
// muster_group_join() has its own Job, whose world it is; any number of these may exist.
//
// Owns the watch, the connection to the store, and on rank 0 the store itself if no agent serves
// one. Any thread may call anything; join() and leave() one at a time.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "muster/init.h"
#include "rendezvous/store/store_client.h"
#include "worker_lib/failure.h"
#include "worker_lib/joining/identity.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"
#include "worker_lib/watch/watch.h"

namespace muster::worker {

class Group;
class GroupHost;
class HostStore;
class Recorder;
struct Met;

std::optional<std::string> process_environment(std::string_view name);

class Job {
 public:
  // Determines this process's place, meets the others at the store, exchanges descriptions, starts
  // the watch, and makes the world group. Returns when all ranks have done so. Fails with
  // environment, invalid_argument, rendezvous, timeout (names the missing ranks), or peer_failed.
  static Outcome<std::shared_ptr<Job>> join(const InitOptions& options);
  // For muster_group_join(). Unrecorded: a program that makes such groups has its own recorder.
  // Calls the store on this thread. REQUIRES: the options have a rank and a world size.
  // `joining`: as the options' time-out says, if not given.
  struct Joining {
    Deadline deadline;
    Interrupted interrupted = {};  // Why the others will not come; may be empty.
  };
  static Outcome<std::shared_ptr<Job>> join_group(
      const InitOptions& options, const MeetThroughStore& at, const std::string& name,
      std::vector<int> known_as, const std::optional<Joining>& joining = std::nullopt);

  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  const Identity& identity() const { return identity_; }
  // Indexed by global rank; `me` is this process.
  const Members& world() const;

  int rank() const { return world().me; }
  int world_size() const { return world().size(); }
  int restart_count() const { return identity().restart_count; }

  // This rank's GPU: as requested, else by the rule of InitOptions::device.
  int cuda_device() const;
  // Number of GPUs that this process sees, without opening the driver.
  int visible_gpus() const;

  Watch& watch() { return *watch_; }

  // Opens a connection to the job's store, for one thread, with this initialisation's prefix. Fails
  // with rendezvous if the store does not answer in time.
  Outcome<StoreClient> connect_store(Deadline deadline) const;

  // The group of all ranks; not null after join().
  const std::shared_ptr<Group>& world_group() const { return world_group_; }
  // The handle of muster.h for the world, which the job keeps.
  using MakeHandle = muster_group* (*)(const std::shared_ptr<Group>& world);
  muster_group* world_handle(MakeHandle make, void (*free)(muster_group*)) {
    std::call_once(handle_is_made_, [&] { world_handle_ = {make(world_group_), free}; });
    return world_handle_.get();
  }

  // Waits for operations in flight, then announces the departure, here and in the groups to which
  // this job's have shrunk; the destructor does neither.
  void leave();

 private:
  Job(Identity self, const InitOptions& options, std::shared_ptr<HostStore> hosted);
  static Outcome<std::shared_ptr<Job>> join_as(Identity self, const InitOptions& options,
                                               const std::string& name, Recorder* recorder,
                                               const Joining& joining);
  Outcome<> set_up(const Met& met, const std::string& name, Recorder* recorder,
                   const Joining& joining);

  const Identity identity_;
  const InitOptions options_;
  std::shared_ptr<HostStore> hosted_;  // Null: not hosted here.
  std::shared_ptr<Watch> watch_;
  std::shared_ptr<GroupHost> groups_;
  std::shared_ptr<Group> world_group_;
  std::once_flag handle_is_made_;
  std::shared_ptr<muster_group> world_handle_;
  std::atomic<bool> has_left_ = false;
};

// Null before init_process_group() and after destroy_process_group().
std::shared_ptr<Job> current_job() noexcept;

// Makes `job` current and returns the previous one.
std::shared_ptr<Job> exchange_current_job(std::shared_ptr<Job> job) noexcept;

// Returns current_job(); throws not_initialized if null, forked in a child of fork().
std::shared_ptr<Job> require_job();

}  // namespace muster::worker
