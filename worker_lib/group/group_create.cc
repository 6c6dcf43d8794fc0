// Making a group: its members meet at the store, agree on the backend, and set it up.

#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/error.h"
#include "worker_lib/backends/gloo_module.h"
#include "worker_lib/camps.h"
#include "worker_lib/copy_bytes.h"
#include "worker_lib/fork_guard.h"
#include "worker_lib/group/group.h"
#include "worker_lib/group/group_plan.h"
#include "worker_lib/group/group_roll_call.h"
#include "worker_lib/group_labels.h"
#include "worker_lib/time_text.h"

namespace muster::worker {

namespace {

constexpr const char* kAllAgree = "all";
constexpr const char* kTheyDiffer = "differ";
constexpr const char* kDoneKey = "done";
constexpr std::array kQueueKeys = {"host", "device"};

// The backend of a group of one, for host memory: a collective copies `in` to `out`; transfers are
// refused, since there is no peer. Needs no store or shared memory.
class SoloBackend final : public GroupBackend {
 public:
  // The result of every kind is this rank's own input.
  Outcome<> run(const Operation& operation, Deadline) override {
    const size_t count =
        operation.recv_counts.empty() ? operation.count : operation.recv_counts.front();
    if (operation.kind != OpKind::barrier && count > 0 && operation.in != operation.out)
      copy_bytes(operation.out, operation.in, count * size_of(operation.dtype));
    return Done{};
  }

  Outcome<int> transfer(const Transfer&, Deadline) override { return nobody(); }
  Outcome<std::vector<std::shared_ptr<WorkState>>> begin(const std::vector<Transfer>&,
                                                         Deadline) override {
    return nobody();
  }
  std::string refuses(const Transfer&) const override { return nobody().value().message; }

  // Nothing ever blocks; the group refuses later calls.
  void abort(const Failure&) override {}

 private:
  static tl::unexpected<Failure> nobody() {
    return failed(ErrorCode::invalid_argument, "the group has no other rank");
  }
};

// `advice`: how the members could have met.
Failure late_members(RollCall& roll_call, const GroupSetup& setup, const char* advice) {
  const auto missing = roll_call.missing();
  if (!missing) return missing.error();
  const std::string limit = within(setup.limit);
  if (missing->empty()) {
    return {ErrorCode::timeout,
            fmt::format("not done {}, although all ranks arrived; give a longer timeout", limit),
            {}};
  }
  return {ErrorCode::timeout,
          fmt::format("{} {}; {}", did_not_come(setup.members, *missing), limit,
                      *advice != 0 ? advice : look_at(missing->size())),
          *missing};
}

const char* meeting_advice(std::string_view made_by) {
  if (made_by != "new_group") return "";
  return "all its ranks must call new_group() as often, each time with the same list in the same "
         "order";
}

// Waits until all members have arrived; fails unless all ask for the same backend.
Outcome<> meet_members(StoreClient store, Backend backend, const GroupSetup& setup,
                       const char* advice) {
  RollCall roll_call(store, setup.members);
  const Outcome<bool> last = roll_call.enter(name_of(backend));
  if (!last) return tl::unexpected(last.error());
  std::string verdict;
  if (*last) {
    const auto wishes = roll_call.wishes();
    if (!wishes) return tl::unexpected(wishes.error());
    const auto decided =
        roll_call.decide(camps_of(*wishes).blamed.empty() ? kAllAgree : kTheyDiffer);
    if (!decided) return tl::unexpected(decided.error());
    verdict = *decided;
  } else {
    const auto told = roll_call.wait_verdict(setup.deadline, setup.interrupted);
    if (!told) return tl::unexpected(told.error());
    if (!*told) return tl::unexpected(late_members(roll_call, setup, advice));
    verdict = **told;
  }
  if (verdict != kTheyDiffer) return Done{};
  const auto wishes = roll_call.wishes();
  if (!wishes) return tl::unexpected(wishes.error());
  return tl::unexpected(
      mismatch_of(*wishes, camps_of(*wishes), setup.members,
                  "{} asks for the backend {}, and {} for {}; ask for the same on all"));
}

// Deletes the keys of the set-up on the last member that finishes it, since a program may make
// groups without end. An error here only costs the store some memory.
void forget_setup(StoreClient store, int members) {
  const auto done = store.add(kDoneKey, 1);
  if (!done || *done != members) return;
  const auto keys = store.list_keys();
  if (!keys) return;
  for (const std::string& key : *keys)
    static_cast<void>(store.delete_key(key));
}

const BackendMaker& maker_of(const BackendMakers& makers, Backend backend) {
  if (backend == Backend::nccl) return makers.nccl;
  return backend == Backend::gloo ? makers.gloo : makers.cpu;
}

}  // namespace

std::optional<Failure> Group::interruption(size_t index) const {
  if (!state_->usable()) return state_->refusal();
  // A member that left before this queue's first operation takes no part.
  return made_ ? departures_.missing_in(index, 1) : std::nullopt;
}

Outcome<std::unique_ptr<GroupBackend>> Group::make_backend(size_t index, Deadline deadline,
                                                           std::chrono::milliseconds limit) {
  const Backend host_backend = plan_.backend == Backend::gloo ? Backend::gloo : Backend::cpu;
  const Backend backend = index == 0 ? host_backend : Backend::nccl;
  if (index == 0 && members_.size() == 1) {
    std::string why;
    if (backend == Backend::gloo && !can_open_gloo(&why))
      return failed(ErrorCode::backend, std::move(why));
    return std::make_unique<SoloBackend>();
  }
  const BackendMaker& maker = maker_of(host_->makers, backend);
  if (!maker) {
    return failed(ErrorCode::backend,
                  fmt::format("this build of muster has no backend {}", name_of(backend)));
  }
  Outcome<StoreClient> store = host_->connect_store(deadline);
  if (!store) return tl::unexpected(std::move(store.error()));
  const StoreClient mine =
      store->with_prefix(fmt::format("group/{}/{}", plan_.id, kQueueKeys[index]));
  GroupSetup setup{.name = plan_.name,
                   .members = members_,
                   .secret = host_->secret,
                   .store = mine.with_prefix("setup"),
                   .deadline = deadline,
                   .limit = limit,
                   .interrupted = [this, index] { return interruption(index); },
                   .cuda_device = host_->cuda_device,
                   .name_stragglers =
                       [state = state_, index](const Failure& suspected, uint64_t sequence) {
                         const Lane lane = index == 0 ? Lane::host : Lane::device;
                         return state->name_stragglers(suspected,
                                                       {.lane = lane, .number = sequence});
                       }};
  const Outcome<> met =
      meet_members(mine, plan_.backend, setup, made_ ? "" : meeting_advice(plan_.made_by));
  if (!met) return tl::unexpected(met.error());
  Outcome<std::unique_ptr<GroupBackend>> made = maker(std::move(setup));
  if (made) forget_setup(mine, members_.size());
  return made;
}

void Group::publish(size_t index, std::unique_ptr<GroupBackend> backend,
                    const LaneRecorder& recorder) {
  queue_owners_[index] =
      std::make_unique<CollectiveQueue>(std::move(backend), index, state_, departures_, recorder);
  queues_[index].store(queue_owners_[index].get());
  // A failure before the store above did not abort this backend.
  if (state_->failed()) queue_owners_[index]->backend().abort(state_->refusal());
}

Outcome<CollectiveQueue*> Group::make_queue(size_t index, const char* operation, Deadline deadline,
                                            std::chrono::milliseconds limit) {
  const std::lock_guard lock(making_);
  if (CollectiveQueue* const made = queues_[index].load()) return made;
  setting_up_[index] = true;
  const Lane calls = index == 0 ? Lane::host : Lane::device;
  const LaneRecorder recorder = recorder_.open(calls);
  Outcome<std::unique_ptr<GroupBackend>> backend = make_backend(index, deadline, limit);
  if (!backend) {
    backend.error().is_suspicion = backend.error().code == ErrorCode::timeout;
    const Lane lane = index == 0 ? Lane::host_set_up : Lane::device_set_up;
    Failure failure =
        state_->settle(backend.error(), label(operation), {lane, 1, false, false, limit});
    setting_up_[index] = false;
    return tl::unexpected(std::move(failure));
  }
  publish(index, std::move(*backend), recorder);
  recorder_.ready(calls);
  return queues_[index].load();
}

Outcome<std::shared_ptr<Group>> Group::make(std::shared_ptr<GroupHost> host, GroupPlan plan,
                                            Deadline deadline, std::chrono::milliseconds limit) {
  Members members = members_among(host->world, plan.ranks);
  const char* const made_by = plan.made_by;
  const size_t first = plan.backend == Backend::nccl ? 1 : 0;
  const std::shared_ptr<Group> group(new Group(host, std::move(plan), std::move(members)),
                                     Retire{});
  if (!group->is_member()) return group;
  const std::string why =
      group->check_device(first == 0 ? Device::cpu() : Device::cuda(host->cuda_device), false);
  if (!why.empty()) return failed(ErrorCode::backend, group->label(made_by) + ": " + why);
  host->add(group);
  group->subscribe();
  const Outcome<CollectiveQueue*> queue = group->make_queue(first, made_by, deadline, limit);
  if (!queue) return tl::unexpected(queue.error());
  group->made_ = true;
  group->recorder_.ready(Lane::host);
  return group;
}

Outcome<std::shared_ptr<Group>> Group::make_world(std::shared_ptr<GroupHost> host,
                                                  Deadline deadline) {
  GroupPlan plan{.id = std::string(kWorldGroup),
                 .name = host->world_name,
                 .timeout = host->timeout,
                 .backend = host->backend,
                 .made_by = "set-up"};
  for (int rank = 0; rank < host->world.size(); ++rank)
    plan.ranks.push_back(GlobalRank{rank});
  const std::chrono::milliseconds limit = host->timeout;
  return make(std::move(host), std::move(plan), deadline, limit);
}

// Derives equal ids without communication: members count their calls for these ranks.
Outcome<std::shared_ptr<Group>> Group::new_group(std::span<const GlobalRank> ranks,
                                                 const GroupOptions& options) {
  // The failure of this group affects no other: the surviving ranks may form a new one.
  std::optional<Failure> refused = refusal("new_group");
  if (refused && (in_forked_child() || !state_->failed()))
    return tl::unexpected(std::move(*refused));
  return make_other("new_group", ranks, options, deadline_of({.timeout = options.timeout}));
}

Outcome<std::shared_ptr<Group>> Group::make_other(const char* made_by,
                                                  std::span<const GlobalRank> ranks,
                                                  const GroupOptions& options, Deadline deadline) {
  const std::string why = check_group(ranks, host_->world.size(), options);
  if (!why.empty()) return failed(ErrorCode::invalid_argument, std::string(made_by) + ": " + why);
  const std::string digest = ranks_digest(ranks);
  const bool member = members_among(host_->world, ranks).me >= 0;
  const uint64_t number = member ? host_->next_number(digest) : 0;
  GroupPlan plan{.id = fmt::format("{}.{}", digest, number),
                 .name = options.name.empty() ? default_group_name(ranks, number) : options.name,
                 .ranks = {ranks.begin(), ranks.end()},
                 .timeout = options.timeout.value_or(host_->timeout),
                 .backend = options.backend.value_or(host_->backend),
                 .made_by = made_by};
  return make(host_, std::move(plan), deadline, limit_of({.timeout = options.timeout}));
}

Outcome<std::shared_ptr<Group>> Group::split(int color, int key, const GroupOptions& options) {
  if (auto refused = refusal("split")) return tl::unexpected(std::move(*refused));
  // Before anything is sent, as in new_group().
  const std::string why = check_group_options(options);
  if (!why.empty()) return failed(ErrorCode::invalid_argument, "split: " + why);
  const Deadline deadline = deadline_of({.timeout = options.timeout});  // For both parts.
  const std::array<int64_t, 2> mine{color, key};
  std::vector<SplitChoice> choices(static_cast<size_t>(members_.size()));
  static_assert(sizeof(SplitChoice) == sizeof mine);
  const Outcome<> gathered =
      perform({.kind = OpKind::all_gather,
               .in = ConstBuffer(mine),
               .out = Buffer(choices.data(), choices.size() * mine.size(), DType::int64),
               .is_service = true,
               .purpose = CallPurpose::split},
              {.timeout = options.timeout});
  if (!gathered) return tl::unexpected(gathered.error());
  if (color >= 0) {
    return make_other("split", ranks_of_color(choices, plan_.ranks, color), options, deadline);
  }
  GroupPlan nobody{.id = "none",
                   .name = options.name.empty() ? "group of another color" : options.name,
                   .timeout = plan_.timeout,
                   .backend = plan_.backend,
                   .made_by = "split"};
  return make(host_, std::move(nobody), Deadline::max(), plan_.timeout);
}

}  // namespace muster::worker
