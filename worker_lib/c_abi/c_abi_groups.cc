#include <chrono>
#include <memory>
#include <vector>

#include "worker_lib/c_abi/c_abi.h"

namespace muster::c_abi {

ProcessGroup group_of(muster_group* handle) {
  return handle == nullptr ? world() : handle->group;
}

}  // namespace muster::c_abi

using namespace muster;
using namespace muster::c_abi;

namespace {

GroupOptions group_options_of(const muster_group_options* given) {
  const muster_group_options group =
      options_or(given, muster_group_options MUSTER_GROUP_OPTIONS, "muster_group_options");
  GroupOptions options;
  if (group.name != nullptr) options.name = group.name;
  if (group.timeout_ms >= 0) options.timeout = std::chrono::milliseconds(group.timeout_ms);
  if (group.backend >= 0) options.backend = backend_of_number(group.backend);
  return options;
}

}  // namespace

muster_status muster_world(muster_group** group) {
  return guarded(__func__, [&] { hand_out(group, "group", world); });
}

muster_status muster_new_group(const int* ranks, size_t count, const muster_group_options* options,
                               muster_group** group) {
  return guarded(__func__, [&] {
    hand_out(group, "group", [&] {
      if (count > 0) require(ranks, "ranks");
      std::vector<GlobalRank> members;
      for (size_t i = 0; i < count; ++i)
        members.push_back(GlobalRank{ranks[i]});
      return new_group(members, group_options_of(options));
    });
  });
}

muster_status muster_split(muster_group* group, int color, int key,
                           const muster_group_options* options, muster_group** split) {
  return guarded(__func__, [&] {
    hand_out(split, "split",
             [&] { return group_of(group).split(color, key, group_options_of(options)); });
  });
}

void muster_group_free(muster_group* group) {
  delete group;
}

int muster_group_is_member(muster_group* group) {
  return guarded_number(__func__, [&] { return group_of(group).is_member() ? 1 : 0; }) == 1 ? 1 : 0;
}

int muster_group_rank(muster_group* group) {
  return guarded_number(__func__, [&] { return group_of(group).rank().value; });
}

int muster_group_size(muster_group* group) {
  return guarded_number(__func__, [&] { return group_of(group).size(); });
}

int muster_group_global_rank(muster_group* group, int group_rank) {
  return guarded_number(__func__,
                        [&] { return group_of(group).global_rank(GroupRank{group_rank}).value; });
}

int muster_group_from_global_rank(muster_group* group, int global_rank) {
  return guarded_number(__func__,
                        [&] { return group_of(group).group_rank(GlobalRank{global_rank}).value; });
}

const char* muster_group_name(muster_group* group) {
  const char* name = "";
  // The group itself owns the string: it outlives the handle that group_of() returns.
  guarded(__func__, [&] { name = group_of(group).name().c_str(); });
  return name;
}

muster_status muster_group_abort(muster_group* group, const char* reason) {
  return guarded(__func__, [&] {
    ProcessGroup aborted = group_of(group);
    if (reason == nullptr) {
      aborted.abort();
    } else {
      aborted.abort(reason);
    }
  });
}

muster_status muster_group_failure(muster_group* group) {
  return guarded(__func__, [&] {
    if (const auto failure = group_of(group).failure()) throw DistributedError(*failure);
  });
}

muster_status muster_allocate_shared(muster_group* group, size_t bytes,
                                     const muster_call_options* options,
                                     muster_shared_memory** memory) {
  return guarded(__func__, [&] {
    hand_out(memory, "memory",
             [&] { return group_of(group).allocate_shared(bytes, Call(options).options); });
  });
}

void* muster_shared_memory_data(muster_shared_memory* memory) {
  return memory == nullptr ? nullptr : memory->memory.data();
}

size_t muster_shared_memory_bytes(muster_shared_memory* memory) {
  return memory == nullptr ? 0 : memory->memory.bytes();
}

void muster_shared_memory_free(muster_shared_memory* memory) {
  delete memory;
}

muster_status muster_work_wait(muster_work* work, int64_t timeout_ms) {
  bool complete = true;
  const muster_status status = guarded(__func__, [&] {
    require(work, "work");
    if (timeout_ms < 0) {
      work->work.wait();
    } else {
      complete = work->work.wait(std::chrono::milliseconds(timeout_ms));
    }
  });
  return complete ? status : MUSTER_IN_PROGRESS;
}

muster_status muster_work_synchronize(muster_work* work) {
  return guarded(__func__, [&] {
    require(work, "work");
    work->work.synchronize();
  });
}

muster_status muster_work_status(muster_work* work) {
  bool complete = true;
  const muster_status status = guarded(__func__, [&] {
    require(work, "work");
    complete = work->work.is_completed();
    if (!complete) return;
    if (const auto error = work->work.error()) throw DistributedError(*error);
  });
  return complete ? status : MUSTER_IN_PROGRESS;
}

int muster_work_source(muster_work* work) {
  return guarded_number(__func__, [&] {
    require(work, "work");
    return work->work.is_completed() ? work->work.source().value : -1;
  });
}

void muster_work_free(muster_work* work) {
  delete work;
}
