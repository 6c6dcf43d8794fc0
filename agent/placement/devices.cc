#include "agent/placement/devices.h"

#include <array>
#include <cctype>

#include <fmt/format.h>

#include "agent/report/wire_json.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

// Far longer than any text or problem of a driver.
constexpr size_t kTextBytesMax = 4096;

// As in DeviceSource.
constexpr std::array<std::string_view, 3> kSourceNames{"none", "nvml", "proc"};
static_assert(kSourceNames.size() == static_cast<size_t>(DeviceSource::proc) + 1);

constexpr auto kMigFields = [](auto& a, auto& mig) { a("uuid", mig.uuid); };

constexpr auto kGpuFields = [](auto& a, auto& gpu) {
  a.number("index", gpu.nvml_index, 0, wire::kCountMax);
  a("uuid", gpu.uuid);
  a("pci", gpu.pci_bus_id);
  a("name", gpu.name);
  a("mig_enabled", gpu.mig_enabled);
  a("mig", gpu.mig, kMigFields);
};

constexpr auto kReportFields = [](auto& a, auto& report) {
  a.word("source", report.source, kSourceNames);
  a("problem", report.problem);
  a("gpus", report.gpus, kGpuFields);
};

constexpr auto kProcessFields = [](auto& a, auto& process) {
  a.number("index", process.nvml_index, 0, wire::kCountMax);
  a.number("pid", process.pid, 0, wire::kCountMax);
  a.number("used_bytes", process.used_bytes, 0, wire::kBigMax);
};

constexpr auto kProcessesFields = [](auto& a, auto& processes) {
  a("processes", processes, kProcessFields);
};

std::string format_report(const auto& report, auto fields) {
  wire::JsonWriter writer(kTextBytesMax);
  fields(writer, report);
  return wire::dump(writer.take());
}

template <typename Report>
Result<Report> parse_report(std::string_view text, auto fields) {
  // Libraries may print to stdout too, so only the last line is ours.
  const wire::Json json = wire::parse(last_line(text));
  std::string wrong;
  wire::JsonReader reader(json, wrong);
  Report report;
  fields(reader, report);
  if (wrong.empty()) return report;
  return fail(ExitCode::internal,
              "the device query printed something other than a device report; the GPU driver may "
              "be broken, check whether nvidia-smi works");
}

std::string describe_holder(const GpuProcess& holder, bool with_gpu) {
  std::string text = with_gpu ? fmt::format("GPU {} by pid {}", holder.nvml_index, holder.pid)
                              : fmt::format("pid {}", holder.pid);
  if (holder.used_bytes > 0) {
    text += fmt::format(" ({:.1f} GiB)", static_cast<double>(holder.used_bytes) / (1u << 30));
  }
  return text;
}

}  // namespace

std::string format_device_report(const DeviceReport& report) {
  return format_report(report, kReportFields);
}

std::string format_gpu_processes(const std::vector<GpuProcess>& processes) {
  return format_report(processes, kProcessesFields);
}

Result<DeviceReport> parse_device_report(std::string_view text) {
  return parse_report<DeviceReport>(text, kReportFields);
}

Result<std::vector<GpuProcess>> parse_gpu_processes(std::string_view text) {
  return parse_report<std::vector<GpuProcess>>(text, kProcessesFields);
}

std::string normalized_pci_bus_id(std::string_view bus_id) {
  std::string text;
  for (const char c : bus_id) {
    text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return text;
  // sysfs gives the domain four digits, or more if it needs them.
  size_t surplus = 0;
  while (surplus + 4 < colon && text[surplus] == '0')
    ++surplus;
  text.erase(0, surplus);
  if (colon - surplus < 4) text.insert(0, 4 - (colon - surplus), '0');
  return text;
}

std::string device_label(const Gpu& gpu, std::string_view mig_uuid) {
  // "GPU-" or "MIG-" and the first group of digits tell devices apart.
  const auto shortened = [](std::string_view uuid) {
    constexpr size_t kShown = 12;
    return uuid.size() <= kShown ? std::string(uuid) : std::string(uuid.substr(0, kShown)) + "…";
  };
  std::string details;
  for (const std::string& part :
       {shortened(gpu.uuid), shortened(mig_uuid), std::string(gpu.pci_bus_id)}) {
    if (part.empty()) continue;
    details += (details.empty() ? "" : ", ") + part;
  }
  std::string label = fmt::format("GPU {}", gpu.nvml_index);
  if (!details.empty()) label += fmt::format(" ({})", details);
  return label;
}

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
