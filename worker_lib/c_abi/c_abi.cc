#include "worker_lib/c_abi/c_abi.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "worker_lib/backends/gloo_module.h"
#include "worker_lib/backends/nccl/nccl_library.h"
#include "worker_lib/fork_guard.h"
#include "worker_lib/joining/job.h"
#include "worker_lib/raise.h"
#include "worker_lib/recorder/recorder.h"

namespace muster::c_abi {
namespace {

// A thread's last failure.
struct Remembered {
  DistributedError in_c;
  DistributedError in_cpp;
};
thread_local std::optional<Remembered> last_failure;

// Made at load time: when they are needed there is no memory to make them.
const worker::Failure kNoMemory{ErrorCode::system, "there is no memory left for the call"};
const DistributedError kOutOfMemory(kNoMemory.code, kNoMemory.message);

[[noreturn]] void refuse_number(int number, int last, const char* type) {
  refuse(std::to_string(number) + " is not a valid " + type + "; the values are 0 to " +
         std::to_string(last));
}

template <typename Enum>
Enum enum_of_number(int number, Enum last, const char* type) {
  if (number < 0 || number > static_cast<int>(last))
    refuse_number(number, static_cast<int>(last), type);
  return static_cast<Enum>(number);
}

muster_status remember(const DistributedError& in_c, const DistributedError& in_cpp) noexcept {
  last_failure.emplace(in_c, in_cpp);
  return static_cast<muster_status>(in_c.code());
}

// C++ names in the library's messages, and their C names.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kCNames{{
    {"init_process_group", "muster_init"},
    {"destroy_process_group", "muster_destroy"},
    {"is_member()", "muster_group_is_member()"},
    {"recv_any() receives", "muster_recv() with from < 0 receives"},
    {"isend()", "muster_send() with a work"},
    {"batch_isend_irecv", "muster_batch"},
    {"exec, or spawn() (muster/spawn.h), to", "exec to"},
    {"InitOptions::timeout", "muster_init_options.timeout_ms"},
    {"InitOptions::", "muster_init_options."},
}};

std::string with_c_names(std::string text) {
  for (const auto& [in_cpp, in_c] : kCNames) {
    for (size_t at = text.find(in_cpp); at != std::string::npos;
         at = text.find(in_cpp, at + in_c.size())) {
      text.replace(at, in_cpp.size(), in_c);
    }
  }
  return text;
}

DistributedError in_words_of_c(const DistributedError& error, const char* function) {
  std::string message = with_c_names(error.what());
  if (error.operation().empty()) message.insert(0, std::string(function) + ": ");
  return {error.code(), message, with_c_names(error.operation()), error.group(),
          error.failed_ranks()};
}

constexpr bool same(ErrorCode code, muster_status status) {
  return static_cast<int>(code) == static_cast<int>(status);
}
static_assert(same(ErrorCode::invalid_argument, MUSTER_ERROR_INVALID_ARGUMENT) &&
              same(ErrorCode::not_initialized, MUSTER_ERROR_NOT_INITIALIZED) &&
              same(ErrorCode::not_member, MUSTER_ERROR_NOT_MEMBER) &&
              same(ErrorCode::forked, MUSTER_ERROR_FORKED) &&
              same(ErrorCode::environment, MUSTER_ERROR_ENVIRONMENT) &&
              same(ErrorCode::rendezvous, MUSTER_ERROR_RENDEZVOUS) &&
              same(ErrorCode::timeout, MUSTER_ERROR_TIMEOUT) &&
              same(ErrorCode::peer_failed, MUSTER_ERROR_PEER_FAILED) &&
              same(ErrorCode::aborted, MUSTER_ERROR_ABORTED) &&
              same(ErrorCode::stopped, MUSTER_ERROR_STOPPED) &&
              same(ErrorCode::mismatch, MUSTER_ERROR_MISMATCH) &&
              same(ErrorCode::backend, MUSTER_ERROR_BACKEND) &&
              same(ErrorCode::system, MUSTER_ERROR_SYSTEM));
// A later version that appends a member must not find it in the padding of this one.
#define ENDS_WITH(type, last) (offsetof(type, last) + sizeof(type::last) == sizeof(type))
static_assert(ENDS_WITH(muster_init_options, on_sigterm) && ENDS_WITH(muster_group_options, site) &&
              ENDS_WITH(muster_call_options, site) && ENDS_WITH(muster_store, error) &&
              ENDS_WITH(muster_join_options, server_host) && ENDS_WITH(muster_bucket_options, op) &&
              ENDS_WITH(muster_sampler_options, drop_last) &&
              ENDS_WITH(muster_spawn_options, timeout_ms));
#undef ENDS_WITH
static_assert(static_cast<int>(DType::float16) == MUSTER_FLOAT16 &&
              static_cast<int>(DType::float64) == MUSTER_FLOAT64 &&
              static_cast<int>(ReduceOp::average) == MUSTER_AVERAGE &&
              static_cast<int>(ReduceOp::bxor) == MUSTER_BXOR &&
              static_cast<int>(Backend::gloo) == MUSTER_BACKEND_GLOO &&
              static_cast<int>(StopPolicy::ignore) == MUSTER_STOP_IGNORE &&
              static_cast<int>(worker::OpKind::barrier) == MUSTER_BARRIER &&
              static_cast<int>(worker::OpKind::all_to_all) == MUSTER_ALL_TO_ALL &&
              static_cast<int>(worker::OpKind::recv) == MUSTER_RECV);

}  // namespace

muster_status remember_current_exception(const char* function) noexcept {
  try {
    try {
      throw;
    } catch (const DistributedError& error) {
      return remember(in_words_of_c(error, function), error);
    } catch (const std::bad_alloc&) {
      worker::failure_reports().add(kNoMemory);
      return remember(kOutOfMemory, kOutOfMemory);
    } catch (const std::exception& error) {
      const DistributedError unexpected = worker::as_error(
          {ErrorCode::system, std::string(function) + ": " + error.what()}, {}, {});
      return remember(unexpected, unexpected);
    }
  } catch (const std::bad_alloc&) {
    return remember(kOutOfMemory, kOutOfMemory);
  }
}

void refuse(const std::string& message) {
  worker::raise({ErrorCode::invalid_argument, message}, {}, {});
}

void require(const void* pointer, const char* name) {
  if (pointer == nullptr) refuse(std::string(name) + " is NULL");
}

void require_out(const void* pointer, const char* name) {
  if (pointer == nullptr) refuse(std::string(name) + " is NULL: it says where the result goes");
}

void refuse_dtype(int number) {
  refuse_number(number, static_cast<int>(DType::float64), "muster_dtype");
}

ReduceOp reduce_op_of_number(int number) {
  return enum_of_number(number, ReduceOp::bxor, "muster_reduce_op");
}

Backend backend_of_number(int number) {
  return enum_of_number(number, Backend::gloo, "muster_backend");
}

StopPolicy stop_policy_of_number(int number) {
  return enum_of_number(number, StopPolicy::ignore, "muster_stop_policy");
}

BucketStrategy bucket_strategy_of_number(int number) {
  return enum_of_number(number, BucketStrategy::reduce_broadcast, "muster_bucket_strategy");
}

ErrorCode error_code_of_number(int number) {
  return enum_of_number(number, ErrorCode::system, "muster_status");
}

}  // namespace muster::c_abi

using namespace muster;
using namespace muster::c_abi;

namespace {

InitOptions init_options_of(const muster_init_options* given) {
  const muster_init_options init =
      options_or(given, muster_init_options MUSTER_INIT_OPTIONS, "muster_init_options");
  InitOptions options;
  options.backend = backend_of_number(init.backend);
  options.on_sigterm = stop_policy_of_number(init.on_sigterm);
  if (init.init_method != nullptr) options.init_method = init.init_method;
  if (init.timeout_ms >= 0) options.timeout = std::chrono::milliseconds(init.timeout_ms);
  if (init.rank >= 0) options.rank = init.rank;
  if (init.world_size >= 0) options.world_size = init.world_size;
  if (init.local_rank >= 0) options.local_rank = init.local_rank;
  if (init.device >= 0) options.device = init.device;
  return options;
}

int is_available(const char* function, bool (*available)(std::string*)) {
  int answer = 0;
  guarded(function, [&] {
    std::string why;
    if (!available(&why)) throw DistributedError(ErrorCode::backend, why);
    answer = 1;
  });
  return answer;
}

constexpr const char* kInitCall = "init_process_group";

[[noreturn]] void throw_init_failure(worker::Failure failure) {
  failure.message.insert(0, std::string(kInitCall) + ": ");
  worker::raise(failure, kInitCall, {});
}

void join_job(const InitOptions& options) {
  if (worker::in_forked_child()) throw_init_failure(worker::forked_failure());
  static std::mutex joining;
  const std::unique_lock alone(joining, std::try_to_lock);
  if (!alone) {
    throw_init_failure({ErrorCode::invalid_argument,
                        "another thread of this process is already in this call: only one thread "
                        "may make the process group"});
  }
  if (worker::current_job() != nullptr) {
    throw_init_failure({ErrorCode::invalid_argument,
                        "this process has a process group already; call destroy_process_group() "
                        "before the next one"});
  }
  worker::Outcome<std::shared_ptr<worker::Job>> job = worker::Job::join(options);
  if (!job) throw_init_failure(job.error());
  worker::exchange_current_job(std::move(*job));
  worker::failure_reports().overcome();
}

// Returns what `ask` returns for the job.
template <typename Ask>
int of_job(const char* function, const Ask& ask) {
  return guarded_number(function, [&] { return ask(*worker::require_job()); });
}

}  // namespace

int muster_abi_version(void) {
  return MUSTER_ABI_VERSION;
}

const char* muster_status_name(int status) {
  if (status == MUSTER_OK) return "ok";
  if (status == MUSTER_IN_PROGRESS) return "in_progress";
  const bool known = status >= MUSTER_ERROR_INVALID_ARGUMENT && status <= MUSTER_ERROR_SYSTEM;
  return known ? name_of(static_cast<ErrorCode>(status)) : "unknown";
}

const char* muster_dtype_name(int dtype) {
  const bool known = dtype >= MUSTER_INT8 && dtype <= MUSTER_FLOAT64;
  return known ? name_of(static_cast<DType>(dtype)) : "unknown";
}

const char* muster_reduce_op_name(int op) {
  const bool known = op >= MUSTER_SUM && op <= MUSTER_BXOR;
  return known ? name_of(static_cast<ReduceOp>(op)) : "unknown";
}

size_t muster_dtype_size(int dtype) {
  const bool known = dtype >= MUSTER_INT8 && dtype <= MUSTER_FLOAT64;
  return known ? size_of(static_cast<DType>(dtype)) : 0;
}

muster_status muster_last_error_code(void) {
  return last_failure ? static_cast<muster_status>(last_failure->in_c.code()) : MUSTER_OK;
}

const char* muster_last_error(void) {
  return last_failure ? last_failure->in_c.what() : "";
}

const char* muster_last_error_operation(void) {
  return last_failure ? last_failure->in_c.operation().c_str() : "";
}

const char* muster_last_error_group(void) {
  return last_failure ? last_failure->in_c.group().c_str() : "";
}

size_t muster_last_error_ranks(int* ranks, size_t capacity) {
  if (!last_failure) return 0;
  const std::vector<GlobalRank>& failed = last_failure->in_c.failed_ranks();
  const size_t copied = ranks == nullptr ? 0 : std::min(capacity, failed.size());
  for (size_t i = 0; i < copied; ++i)
    ranks[i] = failed[i].value;
  return failed.size();
}

const char* muster_last_error_in_cpp(const char** operation) {
  if (operation != nullptr)
    *operation = last_failure ? last_failure->in_cpp.operation().c_str() : "";
  return last_failure ? last_failure->in_cpp.what() : "";
}

muster_status muster_init(const muster_init_options* options) {
  return guarded(__func__, [&] { join_job(init_options_of(options)); });
}

void muster_destroy(void) {
  if (worker::in_forked_child()) return;
  const std::shared_ptr<worker::Job> job = worker::exchange_current_job(nullptr);
  try {
    if (job != nullptr) job->leave();
  } catch (const std::exception&) {
    // Errors do not matter to a rank that is leaving.
  }
}

int muster_is_initialized(void) {
  return worker::current_job() != nullptr ? 1 : 0;
}

int muster_rank(void) {
  return of_job(__func__, [](const worker::Job& job) { return job.rank(); });
}

int muster_world_size(void) {
  return of_job(__func__, [](const worker::Job& job) { return job.world_size(); });
}

int muster_local_rank(void) {
  return of_job(__func__, [](const worker::Job& job) { return job.identity().local_rank; });
}

int muster_local_world_size(void) {
  return of_job(__func__, [](const worker::Job& job) { return job.identity().local_world_size; });
}

int muster_node_rank(void) {
  return of_job(__func__, [](const worker::Job& job) { return job.identity().node_rank; });
}

int muster_restart_count(void) {
  return of_job(__func__, [](const worker::Job& job) { return job.restart_count(); });
}

int muster_cuda_device(void) {
  return of_job(__func__, [](const worker::Job& job) {
    return job.visible_gpus() > 0 ? job.cuda_device() : -1;
  });
}

int muster_is_nccl_available(void) {
  return is_available(__func__, worker::can_open_nccl);
}

int muster_is_gloo_available(void) {
  return is_available(__func__, worker::can_open_gloo);
}

muster_status muster_section_enter(const char* name) {
  return guarded(__func__, [&] {
    require(name, "name");
    if (worker::Recorder* const recorder = worker::process_recorder())
      recorder->enter_section(name);
  });
}

const void* muster_name_site(const char* text) {
  worker::Recorder* const recorder = text != nullptr ? worker::process_recorder() : nullptr;
  return recorder != nullptr ? recorder->name_site(text) : nullptr;
}

void muster_section_leave(void) {
  if (worker::Recorder* const recorder = worker::process_recorder()) recorder->leave_section();
}
