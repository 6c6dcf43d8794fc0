#include "agent/placement/device_users.h"

#include <fmt/format.h>

namespace muster {
namespace {

std::string describe_holder(const GpuProcess& holder, bool with_gpu) {
  std::string text = with_gpu ? fmt::format("GPU {} by pid {}", holder.nvml_index, holder.pid)
                              : fmt::format("pid {}", holder.pid);
  if (holder.used_bytes > 0) {
    text += fmt::format(" ({:.1f} GiB)", static_cast<double>(holder.used_bytes) / (1u << 30));
  }
  return text;
}

}  // namespace

std::vector<GpuProcess> remaining_holders(const std::set<int>& old_pids,
                                          std::vector<GpuProcess> users) {
  std::erase_if(users, [&](const GpuProcess& user) { return !old_pids.contains(user.pid); });
  return users;
}

std::string describe_holders(const std::vector<GpuProcess>& holders) {
  if (holders.empty()) return {};
  std::string text = "GPU memory of the last attempt is still held: ";
  const GpuProcess* previous = nullptr;
  for (const GpuProcess& holder : holders) {
    const bool same_gpu = previous != nullptr && previous->nvml_index == holder.nvml_index;
    if (previous != nullptr) text += same_gpu ? " and " : ", ";
    text += describe_holder(holder, !same_gpu);
    previous = &holder;
  }
  return text;
}

}  // namespace muster
