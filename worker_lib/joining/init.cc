#include "muster/init.h"

#include <exception>
#include <mutex>
#include <utility>

#include "worker_lib/fork_guard.h"
#include "worker_lib/joining/job.h"
#include "worker_lib/raise.h"

namespace muster {
namespace {

constexpr const char* kInitCall = "init_process_group";

[[noreturn]] void throw_init_failure(worker::Failure failure) {
  failure.message.insert(0, std::string(kInitCall) + ": ");
  worker::raise(failure, kInitCall, {});
}

}  // namespace

void init_process_group(const InitOptions& options) {
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

void destroy_process_group() noexcept {
  if (worker::in_forked_child()) return;
  const std::shared_ptr<worker::Job> job = worker::exchange_current_job(nullptr);
  if (job == nullptr) return;
  try {
    job->leave();
  } catch (const std::exception&) {
    // Errors do not matter to a rank that is leaving.
  }
}

bool is_initialized() noexcept {
  return worker::current_job() != nullptr;
}

int rank() {
  return worker::require_job()->rank();
}

int world_size() {
  return worker::require_job()->world_size();
}

int local_rank() {
  return worker::require_job()->identity().local_rank;
}

int local_world_size() {
  return worker::require_job()->identity().local_world_size;
}

int node_rank() {
  return worker::require_job()->identity().node_rank;
}

int restart_count() {
  return worker::require_job()->restart_count();
}

Device device() {
  const std::shared_ptr<worker::Job> job = worker::require_job();
  return job->visible_gpus() > 0 ? Device::cuda(job->cuda_device()) : Device::cpu();
}

}  // namespace muster
