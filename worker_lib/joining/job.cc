#include "worker_lib/joining/job.h"

#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/contract.h"
#include "worker_lib/failure_reports.h"
#include "worker_lib/fork_guard.h"
#include "worker_lib/group/group.h"
#include "worker_lib/group/group_host.h"
#include "worker_lib/joining/contract_env.h"
#include "worker_lib/joining/failure_notice.h"
#include "worker_lib/joining/gpu_count.h"
#include "worker_lib/joining/host_store.h"
#include "worker_lib/joining/meeting.h"
#include "worker_lib/joining/meeting_text.h"
#include "worker_lib/raise.h"

namespace muster::worker {
namespace {

// A world of one has a store only once something asks for it (a GPU backend may).
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

StoreConnector connector_of(const Met& met) {
  if (met.store) {
    return [access = met.access](Deadline deadline) { return access.connect(deadline); };
  }
  return
      [lazy = std::make_shared<LazyStore>()](Deadline deadline) { return lazy->connect(deadline); };
}

Outcome<std::shared_ptr<Watch>> start_watch(const Identity& self, const Met& met,
                                            const InitOptions& options, Deadline deadline) {
  Watch::Options watch;
  watch.world = met.world;
  if (met.store) watch.store = met.store->with_prefix("watch");
  watch.deadline = deadline;
  watch.lives = met.lives;
  watch.on_sigterm = options.on_sigterm;
  const auto* at = std::get_if<MeetAtAddress>(&self.meeting_point);
  if (at != nullptr && at->agent_serves) watch.ask_cause = ask_agents_store(at->host, at->port);
  Outcome<std::unique_ptr<Watch>> started = Watch::start(std::move(watch));
  if (!started) return tl::unexpected(started.error());
  return std::shared_ptr<Watch>(std::move(*started));
}

struct JobSlot {
  std::mutex mutex;
  std::shared_ptr<Job> job;
};

// Never destroyed: a process that ends without destroy_process_group() has failed, and the kernel
// tells the others, by closing its connections.
JobSlot& job_slot() {
  static auto* const slot = new JobSlot;
  return *slot;
}

}  // namespace

// In the order of construction; destroyed in reverse.
struct Job::Parts {
  Identity identity;
  Members world;
  InitOptions options;
  std::shared_ptr<HostStore> hosted;
  StoreConnector connect;
  std::shared_ptr<Watch> watch;
  std::shared_ptr<GroupHost> groups;
  std::shared_ptr<Group> world_group;

  ~Parts() {
    world_group.reset();
    groups.reset();
    watch.reset();
    // Other ranks may still be reading from it.
    if (hosted) HostStore::retire(std::move(hosted));
  }
};

std::optional<std::string> process_environment(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

Job::Job(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Job::~Job() = default;

Outcome<std::shared_ptr<Job>> Job::join(const InitOptions& options) {
  if (in_forked_child()) return tl::unexpected(forked_failure());
  arm_fork_guard();
  Outcome<Identity> self = find_identity(options, process_environment);
  if (!self) return tl::unexpected(self.error());
  failure_reports().joins(self->rank);
  const Deadline deadline = deadline_after(std::chrono::steady_clock::now(), options.timeout);
  const std::string interface = process_environment(env::kGlooSocketIfname).value_or("");
  Outcome<Met> met = meet(*self, {.deadline = deadline, .interface = interface});
  if (!met) return tl::unexpected(met.error());
  complete_place(*self, met->world);

  auto parts = std::make_unique<Parts>();
  parts->identity = std::move(*self);
  parts->world = met->world;
  parts->options = options;
  parts->hosted = std::move(met->hosted);
  parts->connect = connector_of(*met);
  std::shared_ptr<Job> job(new Job(std::move(parts)));
  if (Outcome<> ready = job->set_up(*met, deadline); !ready) return tl::unexpected(ready.error());
  return job;
}

Outcome<> Job::set_up(const Met& met, Deadline deadline) {
  Parts& parts = *parts_;
  Outcome<std::shared_ptr<Watch>> watch = start_watch(parts.identity, met, parts.options, deadline);
  if (!watch) return tl::unexpected(watch.error());
  parts.watch = std::move(*watch);

  parts.groups = std::make_shared<GroupHost>();
  parts.watch->answer_with([groups = std::weak_ptr(parts.groups)] {
    const std::shared_ptr<GroupHost> host = groups.lock();
    return host == nullptr ? std::string() : host->progress().encode();
  });
  GroupHost& groups = *parts.groups;
  groups.world = parts.world;
  groups.connect_store = parts.connect;
  groups.watch = parts.watch;
  groups.reports = &failure_reports();
  const auto* at = std::get_if<MeetAtAddress>(&parts.identity.meeting_point);
  if (at == nullptr || !at->agent_serves) groups.store_host = GlobalRank{0};
  groups.on_sigterm = parts.options.on_sigterm;
  groups.timeout = parts.options.timeout;
  groups.backend = parts.options.backend;
  groups.cuda_device = cuda_device();
  groups.makers = real_backends();
  Outcome<std::shared_ptr<Group>> world = Group::make_world(parts.groups, deadline);
  if (!world) return tl::unexpected(world.error());
  parts.world_group = std::move(*world);
  forget_meeting(met);
  return Done{};
}

const Identity& Job::identity() const {
  return parts_->identity;
}

const Members& Job::world() const {
  return parts_->world;
}

int Job::cuda_device() const {
  if (parts_->options.device) return *parts_->options.device;
  return visible_gpus() == 1 ? 0 : parts_->identity.local_rank;
}

int Job::visible_gpus() const {
  return count_visible_gpus(process_environment(env::kCudaVisibleDevices));
}

Watch& Job::watch() {
  return *parts_->watch;
}

Outcome<StoreClient> Job::connect_store(Deadline deadline) const {
  return parts_->connect(deadline);
}

const std::shared_ptr<Group>& Job::world_group() const {
  return parts_->world_group;
}

void Job::leave() {
  parts_->groups->close_groups();
  parts_->watch->leave();
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

Outcome<std::shared_ptr<Job>> require_job() {
  if (in_forked_child()) return tl::unexpected(forked_failure());
  if (std::shared_ptr<Job> job = current_job()) return job;
  return failed(ErrorCode::not_initialized,
                "there is no process group: call init_process_group() first");
}

void throw_failure(const Failure& failure) {
  raise(failure, {}, {});
}

}  // namespace muster::worker
