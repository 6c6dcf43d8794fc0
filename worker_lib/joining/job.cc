#include "worker_lib/joining/job.h"

#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "rendezvous/base/contract.h"
#include "worker_lib/backends/backend.h"
#include "worker_lib/backends/nccl/nccl_library.h"
#include "worker_lib/failure_reports.h"
#include "worker_lib/fork_guard.h"
#include "worker_lib/group/group.h"
#include "worker_lib/group/group_host.h"
#include "worker_lib/joining/contract_env.h"
#include "worker_lib/joining/failure_notice.h"
#include "worker_lib/joining/gpu_count.h"
#include "worker_lib/joining/host_store.h"
#include "worker_lib/joining/kept_connections.h"
#include "worker_lib/joining/meeting.h"
#include "worker_lib/joining/meeting_text.h"
#include "worker_lib/raise.h"
#include "worker_lib/recorder/recorder.h"

namespace muster::worker {
namespace {

// Store of a world of one, made on first use (a GPU backend may need it).
class LazyStore {
 public:
  Outcome<StoreClient> connect(Deadline deadline) {
    const std::lock_guard lock(mutex_);
    if (!store_) {
      Outcome<std::shared_ptr<HostStore>> made = HostStore::serve({});
      if (!made) return tl::unexpected(made.error());
      store_ = std::move(*made);
    }
    return store_->connect(time_left(deadline));
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<HostStore> store_;
};

using StoreConnector = std::function<Outcome<StoreClient>(Deadline)>;

// Identifies the joining thread, which may use its existing connection while it joins.
struct JoiningThread {
  std::atomic<std::thread::id> id = std::this_thread::get_id();
};

StoreConnector connector_of(const Met& met, std::shared_ptr<JoiningThread> joining) {
  if (met.to_server) {
    return [access = met.access, own = met.to_server->with_prefix(met.access.prefix),
            joining = std::move(joining)](Deadline deadline) -> Outcome<StoreClient> {
      if (joining->id == std::this_thread::get_id()) return own;
      return access.connect(deadline);
    };
  }
  if (met.store) {
    return [access = met.access](Deadline deadline) { return access.connect(deadline); };
  }
  return
      [lazy = std::make_shared<LazyStore>()](Deadline deadline) { return lazy->connect(deadline); };
}

// Returns the rank that hosts the store. The owner of a server given by the program is unknown.
std::optional<GlobalRank> store_host(const MeetingPoint& point) {
  const MeetAtAddress* const at = server_of(point);
  if (at == nullptr) return GlobalRank{0};
  const bool is_given = std::holds_alternative<MeetThroughStore>(point);
  return at->agent_serves || is_given ? std::nullopt : std::optional(GlobalRank{0});
}

Outcome<std::shared_ptr<Watch>> start_watch(const Identity& self, const Met& met,
                                            const InitOptions& options,
                                            const Job::Joining& joining) {
  Watch::Options watch;
  watch.world = met.world;
  watch.secret = met.secret;
  if (met.store) watch.store = met.store->with_prefix("watch");
  watch.deadline = joining.deadline;
  watch.interrupted = joining.interrupted;
  watch.lives = met.lives;
  watch.on_sigterm = options.on_sigterm;
  const MeetAtAddress* const at = server_of(self.meeting_point);
  if (at != nullptr && at->agent_serves) watch.ask_cause = ask_agents_store(at->host, at->port);
  Outcome<std::unique_ptr<Watch>> started = Watch::start(std::move(watch));
  if (!started) return tl::unexpected(started.error());
  return std::shared_ptr<Watch>(std::move(*started));
}

Job::Joining joining_of(const InitOptions& options) {
  return {deadline_after(std::chrono::steady_clock::now(), options.timeout), {}};
}

struct JobSlot {
  std::mutex mutex;
  std::shared_ptr<Job> job;
};

// Never destroyed: a process that ends without destroy_process_group() has failed, and the kernel
// shows that to the others by closing its connections.
JobSlot& job_slot() {
  static auto* const slot = new JobSlot;
  return *slot;
}

}  // namespace

std::optional<std::string> process_environment(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

Job::Job(Identity self, const InitOptions& options, std::shared_ptr<HostStore> hosted)
    : identity_(std::move(self)),
      options_(options),
      hosted_(std::move(hosted)),
      groups_(std::make_shared<GroupHost>()) {}

Job::~Job() {
  world_handle_.reset();
  world_group_.reset();
  groups_.reset();
  watch_.reset();
  // Other ranks may still be using it.
  if (hosted_) HostStore::retire(std::move(hosted_));
}

Outcome<std::shared_ptr<Job>> Job::join(const InitOptions& options) {
  if (in_forked_child()) return tl::unexpected(forked_failure());
  arm_fork_guard();
  Outcome<Identity> self = find_identity(options, process_environment);
  if (!self) return tl::unexpected(self.error());
  failure_reports().joins(self->rank);
  Recorder* const recorder =
      attach_process_recorder(process_environment(env::kRecordFd), self->rank);
  if (recorder != nullptr) recorder->begin_world(self->world_size, self->rank);
  Outcome<std::shared_ptr<Job>> job =
      join_as(std::move(*self), options, std::string(kWorldGroup), recorder, joining_of(options));
  if (!job && recorder != nullptr) recorder->end_world(job.error().message);
  return job;
}

Outcome<std::shared_ptr<Job>> Job::join_group(const InitOptions& options,
                                              const MeetThroughStore& at, const std::string& name,
                                              std::vector<int> known_as,
                                              const std::optional<Joining>& joining) {
  if (in_forked_child()) return tl::unexpected(forked_failure());
  arm_fork_guard();
  Outcome<Identity> self = find_identity(options, at, process_environment);
  if (!self) return tl::unexpected(self.error());
  self->known_as = std::move(known_as);
  failure_reports().joins_group(known_rank(*self, self->rank));
  return join_as(std::move(*self), options, name, nullptr, joining.value_or(joining_of(options)));
}

Outcome<std::shared_ptr<Job>> Job::join_as(Identity self, const InitOptions& options,
                                           const std::string& name, Recorder* recorder,
                                           const Joining& joining) {
  const std::string interface = process_environment(env::kGlooSocketIfname).value_or("");
  Outcome<Met> met = meet(
      self,
      {.deadline = joining.deadline, .interface = interface, .interrupted = joining.interrupted});
  if (!met) return tl::unexpected(met.error());
  complete_place(self, met->world);
  for (Peer& peer : met->world.peers)
    peer.known_as = known_rank(self, peer.rank.value);
  // The caller owns the program's store, which may end with this call.
  if (auto* const through = std::get_if<MeetThroughStore>(&self.meeting_point))
    through->store = nullptr;

  std::shared_ptr<Job> job(new Job(std::move(self), options, std::move(met->hosted)));
  if (Outcome<> ready = job->set_up(*met, name, recorder, joining); !ready)
    return tl::unexpected(ready.error());
  return job;
}

Outcome<> Job::set_up(const Met& met, const std::string& name, Recorder* recorder,
                      const Joining& joining) {
  Outcome<std::shared_ptr<Watch>> watch = start_watch(identity_, met, options_, joining);
  if (!watch) return tl::unexpected(watch.error());
  watch_ = std::move(*watch);

  watch_->answer_with([groups = std::weak_ptr(groups_)] {
    const std::shared_ptr<GroupHost> host = groups.lock();
    return host == nullptr ? std::string() : host->progress().encode();
  });
  groups_->world = met.world;
  groups_->world_name = name;
  groups_->secret = met.secret;
  const auto thread = std::make_shared<JoiningThread>();
  groups_->connect_store = connector_of(met, thread);
  groups_->watch = watch_;
  groups_->recorder = recorder;
  // Peers would take the known numbers in reports for ranks of this group.
  groups_->reports = known_ranks(met.world) == nullptr ? &failure_reports() : nullptr;
  groups_->store_host = store_host(identity_.meeting_point);
  groups_->timeout = options_.timeout;
  groups_->backend = options_.backend;
  groups_->cuda_device = cuda_device();
  groups_->makers = {.cpu = make_cpu_backend,
                     .nccl = make_nccl_backend,
                     .gloo = make_gloo_backend,
                     .nccl_available = can_open_nccl};
  Outcome<std::shared_ptr<Group>> world = Group::make_world(groups_, joining.deadline);
  if (!world) return tl::unexpected(world.error());
  world_group_ = std::move(*world);
  forget_meeting(met);
  thread->id = std::thread::id();
  const MeetAtAddress* const server = server_of(identity_.meeting_point);
  if (met.to_server && !server->agent_serves) keep_connection(*server, *met.to_server);
  return Done{};
}

const Members& Job::world() const {
  return groups_->world;
}

int Job::cuda_device() const {
  if (options_.device) return *options_.device;
  return visible_gpus() == 1 ? 0 : identity_.local_rank;
}

int Job::visible_gpus() const {
  return count_visible_gpus(process_environment(env::kCudaVisibleDevices));
}

Outcome<StoreClient> Job::connect_store(Deadline deadline) const {
  return groups_->connect_store(deadline);
}

void Job::leave() {
  if (has_left_.exchange(true)) return;
  for (const std::shared_ptr<Job>& shrunk : groups_->shrunk_jobs())
    shrunk->leave();
  groups_->close_groups();
  watch_->leave();
}

std::shared_ptr<Job> current_job() noexcept {
  if (in_forked_child()) return nullptr;
  JobSlot& slot = job_slot();
  const std::lock_guard lock(slot.mutex);
  return slot.job;
}

std::shared_ptr<Job> exchange_current_job(std::shared_ptr<Job> job) noexcept {
  JobSlot& slot = job_slot();
  const std::lock_guard lock(slot.mutex);
  return std::exchange(slot.job, std::move(job));
}

std::shared_ptr<Job> require_job() {
  if (in_forked_child()) raise(forked_failure(), {}, {});
  if (std::shared_ptr<Job> job = current_job()) return job;
  raise({ErrorCode::not_initialized, "there is no process group: call init_process_group() first"},
        {}, {});
}

}  // namespace muster::worker
