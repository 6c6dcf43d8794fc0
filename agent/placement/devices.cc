#include "agent/placement/devices.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace muster {
namespace {

using ReportJson = nlohmann::json;

// A driver's strings may contain any bytes; a bad model name must not make the report fail.
std::string dump_report(const ReportJson& json) {
  return json.dump(-1, ' ', true, ReportJson::error_handler_t::replace);
}

std::string_view device_source_name(DeviceSource source) {
  switch (source) {
    case DeviceSource::nvml:
      return "nvml";
    case DeviceSource::proc:
      return "proc";
    case DeviceSource::none:
      break;
  }
  return "none";
}

// Reads members of one JSON object and remembers whether all were present with the right type.
class ReportReader {
 public:
  explicit ReportReader(const ReportJson& object) : object_(object) {
    if (!object_.is_object()) ok_ = false;
  }

  bool ok() const { return ok_; }

  std::string text(const char* key) {
    const ReportJson* value = find(key);
    if (value == nullptr || !value->is_string()) return failed<std::string>();
    return value->get<std::string>();
  }

  bool flag(const char* key) {
    const ReportJson* value = find(key);
    if (value == nullptr || !value->is_boolean()) return failed<bool>();
    return value->get<bool>();
  }

  uint64_t number(const char* key, uint64_t max) {
    const ReportJson* value = find(key);
    if (value == nullptr || !value->is_number_unsigned()) return failed<uint64_t>();
    const auto result = value->get<uint64_t>();
    return result <= max ? result : failed<uint64_t>();
  }

  int integer(const char* key) {
    return static_cast<int>(number(key, static_cast<uint64_t>(std::numeric_limits<int>::max())));
  }

  uint64_t bytes(const char* key) { return number(key, std::numeric_limits<uint64_t>::max()); }

  // The items of an array, each read by `read(reader)`.
  template <typename Read>
  auto array(const char* key, Read read) {
    std::vector<decltype(read(std::declval<ReportReader&>()))> items;
    const ReportJson* value = find(key);
    if (value == nullptr || !value->is_array()) {
      ok_ = false;
      return items;
    }
    for (const ReportJson& item : *value) {
      ReportReader reader(item);
      items.push_back(read(reader));
      ok_ = ok_ && reader.ok();
    }
    return items;
  }

 private:
  template <typename T>
  T failed() {
    ok_ = false;
    return T();
  }

  const ReportJson* find(const char* key) const {
    if (!object_.is_object()) return nullptr;
    const auto it = object_.find(key);
    return it == object_.end() ? nullptr : &*it;
  }

  const ReportJson& object_;
  bool ok_ = true;
};

Gpu read_gpu(ReportReader& reader) {
  Gpu gpu;
  gpu.nvml_index = reader.integer("index");
  gpu.uuid = reader.text("uuid");
  gpu.pci_bus_id = reader.text("pci");
  gpu.name = reader.text("name");
  gpu.mig_enabled = reader.flag("mig_enabled");
  gpu.mig = reader.array("mig", [](ReportReader& mig) { return MigDevice{mig.text("uuid")}; });
  return gpu;
}

GpuUse read_gpu_use(ReportReader& reader) {
  GpuUse use;
  use.nvml_index = reader.integer("index");
  use.uuid = reader.text("uuid");
  use.memory_used_bytes = reader.bytes("used_bytes");
  use.memory_total_bytes = reader.bytes("total_bytes");
  use.processes = reader.array("processes", [](ReportReader& process) {
    const int pid = process.integer("pid");
    return GpuProcess{pid, process.bytes("used_bytes")};
  });
  return use;
}

// Libraries may print to stdout at any time, so only the last line is ours.
std::string_view last_report_line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r'))
    text.remove_suffix(1);
  const size_t newline = text.rfind('\n');
  return newline == std::string_view::npos ? text : text.substr(newline + 1);
}

tl::unexpected<Error> bad_report() {
  return fail(ExitCode::internal,
              "the device query printed something other than a device report; the GPU driver may "
              "be broken, check whether nvidia-smi works");
}

}  // namespace

std::string format_device_report(const DeviceReport& report) {
  ReportJson gpus = ReportJson::array();
  for (const Gpu& gpu : report.gpus) {
    ReportJson mig = ReportJson::array();
    for (const MigDevice& device : gpu.mig)
      mig.push_back({{"uuid", device.uuid}});
    gpus.push_back({{"index", static_cast<unsigned>(gpu.nvml_index)},
                    {"uuid", gpu.uuid},
                    {"pci", gpu.pci_bus_id},
                    {"name", gpu.name},
                    {"mig_enabled", gpu.mig_enabled},
                    {"mig", std::move(mig)}});
  }
  return dump_report({{"source", device_source_name(report.source)},
                      {"problem", report.problem},
                      {"gpus", std::move(gpus)}});
}

std::string format_device_use_report(const DeviceUseReport& report) {
  ReportJson gpus = ReportJson::array();
  for (const GpuUse& use : report.gpus) {
    ReportJson processes = ReportJson::array();
    for (const GpuProcess& process : use.processes) {
      processes.push_back(
          {{"pid", static_cast<unsigned>(process.pid)}, {"used_bytes", process.used_bytes}});
    }
    gpus.push_back({{"index", static_cast<unsigned>(use.nvml_index)},
                    {"uuid", use.uuid},
                    {"used_bytes", use.memory_used_bytes},
                    {"total_bytes", use.memory_total_bytes},
                    {"processes", std::move(processes)}});
  }
  return dump_report({{"problem", report.problem}, {"gpus", std::move(gpus)}});
}

Result<DeviceReport> parse_device_report(std::string_view text) {
  const ReportJson json = ReportJson::parse(last_report_line(text), nullptr, false);
  ReportReader reader(json);
  DeviceReport report;
  const std::string source = reader.text("source");
  if (source == "nvml") {
    report.source = DeviceSource::nvml;
  } else if (source == "proc") {
    report.source = DeviceSource::proc;
  } else if (source != "none") {
    return bad_report();
  }
  report.problem = reader.text("problem");
  report.gpus = reader.array("gpus", read_gpu);
  if (!reader.ok()) return bad_report();
  return report;
}

Result<DeviceUseReport> parse_device_use_report(std::string_view text) {
  const ReportJson json = ReportJson::parse(last_report_line(text), nullptr, false);
  ReportReader reader(json);
  DeviceUseReport report;
  report.problem = reader.text("problem");
  report.gpus = reader.array("gpus", read_gpu_use);
  if (!reader.ok()) return bad_report();
  return report;
}

std::string normalized_pci_bus_id(std::string_view bus_id) {
  std::string text;
  for (const char c : bus_id) {
    text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return text;
  // The domain has four digits in sysfs, or more only if it needs them.
  size_t surplus = 0;
  while (surplus + 4 < colon && text[surplus] == '0')
    ++surplus;
  text.erase(0, surplus);
  if (colon - surplus < 4) text.insert(0, 4 - (colon - surplus), '0');
  return text;
}

std::string device_label(const Gpu& gpu, std::string_view mig_uuid) {
  // "GPU-" or "MIG-" and the first group of digits are enough to tell devices apart.
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

}  // namespace muster
