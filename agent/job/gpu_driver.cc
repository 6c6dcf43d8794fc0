#include "agent/job/gpu_driver.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "agent/placement/proc_devices.h"
#include "rendezvous/net/call_after.h"

namespace muster {
namespace {

constexpr auto kDevicesLimit = std::chrono::seconds(20);
constexpr auto kUsersLimit = std::chrono::seconds(5);
constexpr auto kMemoryPatience = std::chrono::seconds(20);
constexpr auto kMemoryPause = std::chrono::milliseconds(200);

}  // namespace

void GpuDriver::cancel() {
  helper_.cancel();
  pause_.cancel();
}

void GpuDriver::ask(const char* flag, Duration limit, HelperProcess::Done done) {
  helper_.ask(
      {.arguments = {flag},
       .limit = limit,
       .what = "ask the GPU driver",
       .late = fmt::format("the GPU driver did not answer within {:.0f} s (does `nvidia-smi` hang "
                           "too?); give --nproc-per-node a number and leave the GPU flags out to "
                           "start without asking it",
                           to_seconds(limit))},
      std::move(done));
}

void GpuDriver::find_devices(std::function<void(const Result<DeviceReport>&)> done) {
  ask("--internal-devices", kDevicesLimit,
      [this, done = std::move(done)](const Result<std::string>& text) {
        const Result<DeviceReport> devices = text.and_then(parse_device_report);
        has_gpus_ = devices && !devices->gpus.empty();
        done(devices);
      });
}

void GpuDriver::when_memory_is_free(std::function<void()> next) {
  if (!has_gpus_ && quick_gpu_count().value_or(0) == 0) return next();
  look_at_memory(std::chrono::steady_clock::now() + kMemoryPatience, std::move(next));
}

void GpuDriver::look_at_memory(Deadline give_up, std::function<void()> next) {
  ask("--internal-device-users", kUsersLimit,
      [this, give_up, next = std::move(next)](const Result<std::string>& text) {
        const Result<std::vector<GpuProcess>> users = text.and_then(parse_gpu_processes);
        if (!users) {
          job_.say(users.error().message);
          return next();
        }
        const std::vector<GpuProcess> holders = remaining_holders(processes_.seen_pids(), *users);
        if (holders.empty()) return next();
        if (std::chrono::steady_clock::now() >= give_up) {
          job_.say(describe_holders(holders) + "; starting anyway");
          return next();
        }
        call_after(pause_, kMemoryPause, [this, give_up, next] { look_at_memory(give_up, next); });
      });
}

}  // namespace muster
