// Common parts of the C functions of muster.h: handles, the failure that a thread remembers, and
// options that state their size. Every C function is one call of guarded(), which lets no exception
// through and notes the place of the call. Any thread; the remembered failure is the thread's own.
#pragma once

#include <memory>
#include <string>

#include "muster/init.h"
#include "muster/muster.h"
#include "muster/process_group.h"
#include "worker_lib/recorder/call_site.h"

namespace muster::worker {
class Job;
}

struct muster_group {
  muster::ProcessGroup group;
  std::shared_ptr<muster::worker::Job> joined = nullptr;  // Set by muster_group_join().
};

struct muster_work {
  muster::Work work;
};

struct muster_shared_memory {
  muster::SharedMemory memory;
};

namespace muster::c_abi {

// Remembers the current exception for the thread's muster_last_error() and its companions, with C
// names in its message. If it names no operation, prepends `function`, the C function called.
muster_status remember_current_exception(const char* function) noexcept;

// Inlined into the C function, for its CallSite.
template <typename Body>
[[gnu::always_inline]] inline muster_status guarded(const char* function, Body&& body) noexcept {
  const worker::CallSite site;
  try {
    body();
    return MUSTER_OK;
  } catch (...) {
    return remember_current_exception(function);
  }
}

// Variant for functions that return a number; -1 is failure.
template <typename Body>
int guarded_number(const char* function, Body&& body) noexcept {
  int number = -1;
  guarded(function, [&] { number = body(); });
  return number;
}

[[noreturn]] void refuse(const std::string& message);

// Refuses a null pointer, by the parameter's name.
void require(const void* pointer, const char* name);
// Refuses a null pointer to a result.
void require_out(const void* pointer, const char* name);

// Convert the numbers of muster.h to the library's enumerations; refuse others.
DType dtype_of_number(int number);
ReduceOp reduce_op_of_number(int number);
Backend backend_of_number(int number);
StopPolicy stop_policy_of_number(int number);

// Returns the caller's options if given, else the initialiser macro's. Refuses any size but that of
// this library's structure. REQUIRES: Options begins with `struct_size`.
template <typename Options>
Options options_or(const Options* given, const Options& initial, const char* type) {
  if (given == nullptr) return initial;
  if (given->struct_size != sizeof(Options)) {
    refuse(std::string(type) + ".struct_size is " + std::to_string(given->struct_size) +
           " and this library knows " + std::to_string(sizeof(Options)) +
           "; begin with its initialiser macro, or compile against the muster.h of this library");
  }
  return *given;
}

// Options of one call, and the device of its memory.
struct Call {
  explicit Call(const muster_call_options* given);

  Buffer buffer(void* data, size_t count, DType dtype) const {
    return {data, count, dtype, device};
  }
  ConstBuffer buffer(const void* data, size_t count, DType dtype) const {
    return {data, count, dtype, device};
  }

  CallOptions options;
  Device device;
};

// Returns the group of a handle; NULL: the world.
ProcessGroup group_of(muster_group* handle);

// True if the buffers that only the root needs are used. Also true on a rank that is not a member,
// which the operation itself refuses.
bool is_root(const ProcessGroup& group, int root);

constexpr auto content_of(const muster_group*) {
  return &muster_group::group;
}
constexpr auto content_of(const muster_work*) {
  return &muster_work::work;
}
constexpr auto content_of(const muster_shared_memory*) {
  return &muster_shared_memory::memory;
}

// Passes out a handle for what `make` returns. The handle is allocated first: a lack of memory must
// not lose a group that was made, or an operation that was begun.
template <typename Handle, typename Make>
void hand_out(Handle** out, const char* name, Make&& make) {
  require_out(out, name);
  auto handle = std::make_unique<Handle>();
  (*handle).*content_of(handle.get()) = make();
  *out = handle.release();
}

// Runs the operation if `work` is null, else begins it and passes out its handle.
template <typename Run, typename Begin>
void perform(muster_work** work, Run&& run, Begin&& begin) {
  work == nullptr ? run() : hand_out(work, "work", begin);
}

}  // namespace muster::c_abi
