#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "rendezvous/base/text.h"
#include "worker_lib/c_abi/c_abi.h"
#include "worker_lib/fork_guard.h"
#include "worker_lib/group/group.h"
#include "worker_lib/group/group_plan.h"
#include "worker_lib/group_labels.h"
#include "worker_lib/joining/callers_store.h"
#include "worker_lib/joining/job.h"
#include "worker_lib/joining/meeting_text.h"
#include "worker_lib/joining/shrink.h"
#include "worker_lib/raise.h"

namespace muster::c_abi {

std::shared_ptr<worker::Group> group_of_world() {
  return worker::require_job()->world_group();
}

}  // namespace muster::c_abi

using namespace muster;
using namespace muster::c_abi;
using muster::worker::Group;

namespace {

// Time for an operation to complete whose buffers are about to go.
constexpr std::chrono::seconds kAbandonPatience{1};

GroupOptions group_options_of(const muster_group_options* given) {
  const muster_group_options group =
      options_or(given, muster_group_options MUSTER_GROUP_OPTIONS, "muster_group_options");
  GroupOptions options;
  if (group.name != nullptr) options.name = group.name;
  if (group.timeout_ms >= 0) options.timeout = std::chrono::milliseconds(group.timeout_ms);
  if (group.backend >= 0) options.backend = backend_of_number(group.backend);
  if (group.site != nullptr) worker::CallSite::replace(group.site);
  return options;
}

// Calls the functions of a muster_store.
class StoreOfFunctions final : public worker::CallersStore {
 public:
  explicit StoreOfFunctions(const muster_store& store) : store_(store) {}

  worker::Outcome<> set(std::string_view key, std::string_view value) override {
    if (store_.set(store_.context, std::string(key).c_str(), value.data(), value.size()) == 0)
      return worker::Done{};
    return failure("set", key);
  }

  worker::Outcome<std::optional<std::string>> get(std::string_view key,
                                                  Deadline deadline) override {
    std::string value(kValueBytes, '\0');
    for (;;) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(worker::time_left(deadline)).count();
      size_t length = 0;
      const int status = store_.get(store_.context, std::string(key).c_str(), left, value.data(),
                                    value.size(), &length);
      if (status == 1) return std::nullopt;
      if (status != 0) return failure("get", key);
      const bool is_whole = length <= value.size();
      value.resize(length);
      if (is_whole) return value;
    }
  }

 private:
  static constexpr size_t kValueBytes = 4096;
  static constexpr size_t kWhyBytesMax = 1000;

  tl::unexpected<worker::Failure> failure(const char* call, std::string_view key) const {
    const char* const why = store_.error != nullptr ? store_.error(store_.context) : nullptr;
    return worker::failed(ErrorCode::rendezvous,
                          fmt::format("{}() of the store that was given failed for the key {}{}{}",
                                      call, key, why != nullptr ? ": " : "",
                                      why != nullptr ? printable(why, kWhyBytesMax) : ""));
  }

  const muster_store& store_;
};

muster_store checked_store(const muster_store* given) {
  require(given, "store");
  const muster_store store = options_or(given, muster_store MUSTER_STORE, "muster_store");
  if (store.set == nullptr || store.get == nullptr) refuse("store->set and store->get are needed");
  return store;
}

InitOptions joining_options(int rank, int size, const muster_join_options& join) {
  if (size < 1) refuse(fmt::format("size is {}: it must be 1 or more", size));
  if (rank < 0 || rank >= size)
    refuse(fmt::format("rank is {}: it must be from 0 to {}", rank, size - 1));
  if (join.timeout_ms == 0) refuse("muster_join_options.timeout_ms is 0, which leaves no time");
  InitOptions options;
  options.rank = rank;
  options.world_size = size;
  options.backend = backend_of_number(join.backend);
  options.on_sigterm = stop_policy_of_number(join.on_sigterm);
  if (join.timeout_ms > 0) options.timeout = std::chrono::milliseconds(join.timeout_ms);
  if (join.device >= 0) options.device = join.device;
  return options;
}

std::optional<worker::MeetAtAddress> told_server(const muster_join_options& join) {
  if (join.server_host == nullptr) return std::nullopt;
  if (*join.server_host == '\0') refuse("muster_join_options.server_host is empty");
  if (join.server_port < 1 || join.server_port > 65535) {
    refuse(fmt::format("muster_join_options.server_port is {}: it must be from 1 to 65535",
                       join.server_port));
  }
  return worker::MeetAtAddress{join.server_host, static_cast<uint16_t>(join.server_port)};
}

std::string name_of_joined(const muster_join_options& join) {
  std::string name(join.name != nullptr ? std::string_view(join.name) : worker::kWorldGroup);
  const std::string why = worker::check_group_name(name);
  if (name.empty() || !why.empty())
    refuse("muster_join_options.name: " + (why.empty() ? "it is empty" : why));
  return name;
}

// Returns the group's name for its failure; no default name if the arguments were refused.
std::string name_of_new(const std::vector<GlobalRank>& ranks, const GroupOptions& options,
                        const worker::Failure& failure) {
  const bool refused = failure.code == ErrorCode::invalid_argument;
  return options.name.empty() && !refused ? worker::default_group_name(ranks) : options.name;
}

[[noreturn]] void refuse_query(const Group& group, ErrorCode code, const char* call,
                               std::string why) {
  worker::raise(
      worker::labelled({code, std::move(why)}, worker::operation_label(call, 0, group.name())),
      call, group.name());
}

// Refuses an operation whose thread exists only in the parent.
worker::WorkState& live_state(const muster_work* work) {
  require(work, "work");
  if (worker::in_forked_child()) [[unlikely]]
    worker::raise(worker::forked_failure(), work->state->operation, work->state->group);
  return *work->state;
}

void raise_if_failed(const worker::WorkState& state, const worker::Outcome<>& outcome) {
  if (!outcome) worker::raise(outcome.error(), state.operation, state.group, state.known_ranks);
  worker::failure_reports().overcome();
}

muster_group* handle_of_world(const std::shared_ptr<Group>& world) {
  return handle_of(world);
}

muster_group* shared(muster_group* group) {
  group->owners.fetch_add(1, std::memory_order_relaxed);
  return group;
}

worker::Job& joined_job(muster_group* group) {
  require(group, "group");
  if (group->joined == nullptr) refuse("the group was not made by muster_group_join()");
  return *group->joined;
}

}  // namespace

muster_status muster_group_join(const muster_store* store, int rank, int size,
                                const muster_join_options* options, muster_group** group) {
  return guarded(__func__, [&] {
    require_out(group, "group");
    auto handle = std::make_unique<muster_group>();
    const muster_store functions = checked_store(store);
    const muster_join_options join =
        options_or(options, muster_join_options MUSTER_JOIN_OPTIONS, "muster_join_options");
    const InitOptions joining = joining_options(rank, size, join);
    StoreOfFunctions meeting(functions);
    std::vector<int> known_as;
    if (join.known_as != nullptr) known_as.assign(join.known_as, join.known_as + size);
    worker::Outcome<std::shared_ptr<worker::Job>> job = worker::Job::join_group(
        joining, {&meeting, told_server(join)}, name_of_joined(join), known_as);
    if (!job) {
      worker::raise(
          job.error(), {}, {},
          known_as.empty() ? nullptr : std::make_shared<const std::vector<int>>(known_as));
    }
    worker::failure_reports().overcome();
    handle->joined = std::move(*job);
    handle->group = handle->joined->world_group();
    *group = handle.release();
  });
}

muster_status muster_group_leave(muster_group* group) {
  return guarded(__func__, [&] {
    worker::Job& job = joined_job(group);
    if (!worker::in_forked_child()) job.leave();
  });
}

muster_status muster_world(muster_group** group) {
  return guarded(__func__, [&] {
    require_out(group, "group");
    *group = shared(worker::require_job()->world_handle(handle_of_world, muster_group_free));
  });
}

muster_status muster_new_group(const int* ranks, size_t count, const muster_group_options* options,
                               muster_group** group) {
  return guarded(__func__, [&] {
    hand_out(group, "group", [&] {
      if (count > 0) require(ranks, "ranks");
      std::vector<GlobalRank> members;
      for (size_t i = 0; i < count; ++i)
        members.push_back(GlobalRank{ranks[i]});
      const GroupOptions given = group_options_of(options);
      auto made = group_of(nullptr)->new_group(members, given);
      if (!made)
        worker::raise(made.error(), "new_group", name_of_new(members, given, made.error()));
      return std::move(*made);
    });
  });
}

muster_status muster_split(muster_group* group, int color, int key,
                           const muster_group_options* options, muster_group** split) {
  return guarded(__func__, [&] {
    hand_out(split, "split", [&] {
      const std::shared_ptr<Group> members = group_of(group);
      return value_or_raise(members->split(color, key, group_options_of(options)), "split",
                            *members);
    });
  });
}

muster_status muster_group_shrink(muster_group* group, const muster_group_options* options,
                                  muster_group** shrunk) {
  return guarded(__func__, [&] {
    require_out(shrunk, "shrunk");
    const std::shared_ptr<Group> members = group_of(group);
    auto handle = std::make_unique<muster_group>();
    handle->joined =
        value_or_raise(worker::shrink(*members, group_options_of(options)), "shrink", *members);
    handle->group = handle->joined->world_group();
    *shrunk = handle.release();
  });
}

muster_status muster_group_agree(muster_group* group, uint64_t value, uint64_t* agreed,
                                 const muster_call_options* options) {
  return guarded(__func__, [&] {
    require_out(agreed, "agreed");
    const std::shared_ptr<Group> members = group_of(group);
    *agreed =
        value_or_raise(worker::agree(*members, value, Call(options).options), "agree", *members);
  });
}

muster_status muster_group_copy(muster_group* group, muster_group** copy) {
  if (group == nullptr) return muster_world(copy);
  return guarded(__func__, [&] {
    require_out(copy, "copy");
    *copy = shared(group);
  });
}

void muster_group_free(muster_group* group) {
  if (group != nullptr && group->owners.fetch_sub(1) == 1) delete group;
}

int muster_group_is_member(muster_group* group) {
  return guarded_number(__func__, [&] { return group_of(group)->is_member() ? 1 : 0; }) == 1 ? 1
                                                                                             : 0;
}

int muster_group_rank(muster_group* group) {
  return guarded_number(__func__, [&] {
    const std::shared_ptr<Group> members = group_of(group);
    if (members->is_member()) return members->members().me;
    refuse_query(*members, ErrorCode::not_member, "rank",
                 "this rank is not a member of it (see is_member())");
  });
}

int muster_group_size(muster_group* group) {
  return guarded_number(__func__, [&] { return group_of(group)->members().size(); });
}

int muster_group_global_rank(muster_group* group, int group_rank) {
  return guarded_number(__func__, [&] {
    const std::shared_ptr<Group> members = group_of(group);
    const std::string why = worker::check_rank("rank", group_rank, members->members().size());
    if (why.empty()) return members->ranks()[static_cast<size_t>(group_rank)].value;
    refuse_query(*members, ErrorCode::invalid_argument, "global_rank", why);
  });
}

int muster_group_from_global_rank(muster_group* group, int global_rank) {
  return guarded_number(__func__, [&] {
    const std::shared_ptr<Group> members = group_of(group);
    const auto at = std::ranges::find(members->ranks(), GlobalRank{global_rank});
    if (at != members->ranks().end()) return static_cast<int>(at - members->ranks().begin());
    refuse_query(*members, ErrorCode::invalid_argument, "group_rank",
                 fmt::format("rank {} of the job is not in it", global_rank));
  });
}

size_t muster_group_ranks(muster_group* group, int* ranks, size_t capacity) {
  size_t count = 0;
  guarded(__func__, [&] {
    const std::shared_ptr<Group> members = group_of(group);
    count = members->ranks().size();
    for (size_t i = 0; ranks != nullptr && i < std::min(count, capacity); ++i)
      ranks[i] = members->ranks()[i].value;
  });
  return count;
}

int64_t muster_group_timeout_ms(muster_group* group) {
  int64_t limit = -1;
  guarded(__func__, [&] { limit = group_of(group)->timeout().count(); });
  return limit;
}

int muster_group_backend(muster_group* group, int on_gpu) {
  return guarded_number(__func__, [&] {
    const std::shared_ptr<Group> members = group_of(group);
    const auto backend = members->backend(on_gpu != 0);
    return backend ? static_cast<int>(*backend) : -1;
  });
}

const char* muster_group_name(muster_group* group) {
  const char* name = "";
  // Owned by the group itself: outlives the handle that group_of() returns.
  guarded(__func__, [&] { name = group_of(group)->name().c_str(); });
  return name;
}

muster_status muster_group_abort(muster_group* group, const char* reason) {
  return guarded(__func__, [&] {
    const std::shared_ptr<Group> aborted = group_of(group);
    const std::optional<worker::Failure> refused = aborted->refusal("abort");
    const bool cannot =
        refused && (refused->code == ErrorCode::not_member || refused->code == ErrorCode::forked);
    if (cannot) worker::raise(*refused, "abort", aborted->name(), aborted->known_ranks());
    aborted->abort(reason == nullptr ? "abort() was called" : reason);
  });
}

muster_status muster_group_failure(muster_group* group) {
  return guarded(__func__, [&] {
    const std::shared_ptr<Group> asked = group_of(group);
    const std::string& name = asked->name();
    if (worker::in_forked_child()) worker::raise(*asked->refusal("failure"), "failure", name);
    if (const std::optional<worker::Failure> failure = asked->failure()) {
      worker::raise(worker::labelled(*failure, worker::group_title(name)), {}, name,
                    asked->known_ranks());
    }
  });
}

muster_status muster_allocate_shared(muster_group* group, size_t bytes,
                                     const muster_call_options* options,
                                     muster_shared_memory** memory) {
  return guarded(__func__, [&] {
    require_out(memory, "memory");
    auto handle = std::make_unique<muster_shared_memory>();
    const std::shared_ptr<Group> members = group_of(group);
    handle->block = value_or_raise(members->allocate_shared(bytes, Call(options).options),
                                   "allocate_shared", *members);
    handle->bytes = bytes;
    *memory = handle.release();
  });
}

void* muster_shared_memory_data(muster_shared_memory* memory) {
  return memory == nullptr ? nullptr : memory->block.data;
}

size_t muster_shared_memory_bytes(muster_shared_memory* memory) {
  return memory == nullptr ? 0 : memory->bytes;
}

void muster_shared_memory_free(muster_shared_memory* memory) {
  delete memory;
}

muster_status muster_work_wait(muster_work* work, int64_t timeout_ms) {
  bool complete = true;
  const muster_status status = guarded(__func__, [&] {
    worker::WorkState& state = live_state(work);
    const Deadline until = timeout_ms < 0 ? Deadline::max()
                                          : deadline_after(std::chrono::steady_clock::now(),
                                                           std::chrono::milliseconds(timeout_ms));
    const auto outcome = state.wait(until);
    complete = outcome.has_value();
    if (complete) raise_if_failed(state, *outcome);
  });
  return complete ? status : MUSTER_IN_PROGRESS;
}

muster_status muster_work_synchronize(muster_work* work) {
  return guarded(__func__, [&] {
    worker::WorkState& state = live_state(work);
    if (const auto outcome = state.synchronize(Deadline::max())) raise_if_failed(state, *outcome);
  });
}

muster_status muster_work_status(muster_work* work) {
  bool complete = true;
  const muster_status status = guarded(__func__, [&] {
    const worker::WorkState& state = live_state(work);
    complete = state.is_complete();
    const auto outcome = complete ? state.outcome() : std::nullopt;
    if (outcome && !*outcome)
      worker::raise(outcome->error(), state.operation, state.group, state.known_ranks);
  });
  return complete ? status : MUSTER_IN_PROGRESS;
}

int muster_work_is_complete(muster_work* work) {
  return guarded_number(__func__, [&] { return live_state(work).is_complete() ? 1 : 0; });
}

int muster_work_source(muster_work* work) {
  return guarded_number(__func__, [&] {
    const worker::WorkState& state = live_state(work);
    return state.is_complete() ? state.source() : -1;
  });
}

muster_status muster_work_copy(muster_work* work, muster_work** copy) {
  return guarded(__func__, [&] {
    require(work, "work");
    hand_out(copy, "copy", [&] { return work->state; });
  });
}

void muster_work_abandon(muster_work* work) {
  if (work == nullptr || worker::in_forked_child()) return;
  guarded(__func__, [&] {
    if (work->state->synchronize(std::chrono::steady_clock::now() + kAbandonPatience)) return;
    work->state->abandon();
    work->state->synchronize(Deadline::max());
  });
}

void muster_work_free(muster_work* work) {
  delete work;
}
