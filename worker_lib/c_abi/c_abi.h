// Common parts of the C functions of muster.h: handles, the failure that a thread remembers, and
// options that state their size. Every C function is one call of guarded(), which lets no exception
// through and notes the place of the call. Any thread; the remembered failure is the thread's own.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "muster/gradient_buckets.h"
#include "muster/init.h"
#include "muster/muster.h"
#include "muster/process_group.h"
#include "worker_lib/group/group.h"
#include "worker_lib/raise.h"
#include "worker_lib/recorder/call_site.h"

namespace muster::worker {
class Job;
}

struct muster_group {
  std::shared_ptr<muster::worker::Group> group;
  std::atomic<int> owners = 1;                            // Each frees the handle once.
  std::shared_ptr<muster::worker::Job> joined = nullptr;  // Set by muster_group_join().
};

struct muster_work {
  std::shared_ptr<muster::worker::WorkState> state;
};

struct muster_shared_memory {
  muster::worker::SharedBlock block;
  size_t bytes = 0;
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
[[noreturn]] void refuse_dtype(int number);
inline DType dtype_of_number(int number) {
  if (number < 0 || number > static_cast<int>(DType::float64)) [[unlikely]]
    refuse_dtype(number);
  return static_cast<DType>(number);
}
ReduceOp reduce_op_of_number(int number);
Backend backend_of_number(int number);
StopPolicy stop_policy_of_number(int number);
BucketStrategy bucket_strategy_of_number(int number);
ErrorCode error_code_of_number(int number);

// Returns the caller's options if given, else the initialiser macro's. Refuses any size but that of
// this library's structure. REQUIRES: Options begins with `struct_size`.
template <typename Options>
const Options& options_or(const Options* given, const Options& initial, const char* type) {
  if (given == nullptr) return initial;
  if (given->struct_size != sizeof(Options)) [[unlikely]] {
    refuse(std::string(type) + ".struct_size is " + std::to_string(given->struct_size) +
           " and this library knows " + std::to_string(sizeof(Options)) +
           "; begin with its initialiser macro, or compile against the muster.h of this library");
  }
  return *given;
}

// Options of one call, and the device of its memory.
struct Call {
  explicit Call(const muster_call_options* given) {
    static constexpr muster_call_options kInitial MUSTER_CALL_OPTIONS;
    const muster_call_options& call = options_or(given, kInitial, "muster_call_options");
    if (call.timeout_ms >= 0) options.timeout = std::chrono::milliseconds(call.timeout_ms);
    options.stream = call.stream;
    if (call.cuda_device >= 0) device = Device::cuda(call.cuda_device);
    if (call.site != nullptr) worker::CallSite::replace(call.site);
  }

  Buffer buffer(void* data, size_t count, DType dtype) const {
    return {data, count, dtype, device};
  }
  ConstBuffer buffer(const void* data, size_t count, DType dtype) const {
    return {data, count, dtype, device};
  }

  CallOptions options;
  Device device;
};

std::shared_ptr<worker::Group> group_of_world();

// Returns the group of a handle; NULL: the world. The copy keeps it for the call: a program may
// free the handle meanwhile.
inline std::shared_ptr<worker::Group> group_of(muster_group* handle) {
  return handle == nullptr ? group_of_world() : handle->group;
}

// A handle for the C and the C++ functions.
inline muster_group* handle_of(std::shared_ptr<worker::Group> group) {
  return new muster_group{.group = std::move(group)};
}
inline muster_work* handle_of(std::shared_ptr<worker::WorkState> state) {
  return new muster_work{std::move(state)};
}

template <typename T>
T value_or_raise(worker::Outcome<T> outcome, const char* operation, const worker::Group& group) {
  if (outcome) [[likely]] {
    worker::failure_reports().overcome();
    return std::move(*outcome);
  }
  worker::raise(outcome.error(), operation, group.name(), group.known_ranks());
}

constexpr auto content_of(const muster_group*) {
  return &muster_group::group;
}
constexpr auto content_of(const muster_work*) {
  return &muster_work::state;
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

inline Buffer buffer_of(const muster_buffer& buffer) {
  const Device device = buffer.cuda_device < 0 ? Device::cpu() : Device::cuda(buffer.cuda_device);
  return {buffer.data, buffer.count, dtype_of_number(buffer.dtype), device};
}
inline bool is_message(const muster_operation& operation) {
  return operation.kind == MUSTER_SEND || operation.kind == MUSTER_RECV;
}
worker::Transfer transfer_of(const muster_operation& message, const CallOptions& options);

// Performs the collective if `work` is null, else begins it and passes out its handle.
void perform(worker::Group& group, const worker::CollectiveCall& call, const CallOptions& options,
             muster_work** work);
// Returns the sender, or -1 if the message was only begun.
int perform_transfer(worker::Group& group, const worker::Transfer& transfer,
                     const CallOptions& options, muster_work** work);
}  // namespace muster::c_abi
