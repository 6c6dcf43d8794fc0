#include "agent/placement/cpu_topology.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <system_error>

#include <fmt/format.h>

#include "agent/report/text.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// No Linux kernel can be built for more CPUs; a larger number must not make us allocate gigabytes.
constexpr int kCpusMax = 1 << 16;

// Empty if the file cannot be read.
std::string first_line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::optional<int> integer_in(const fs::path& file) {
  return whole_number<int>(trim(first_line_of(file)));
}

CpuSet cpu_list_in(const fs::path& file) {
  return parse_cpu_list(first_line_of(file)).value_or(CpuSet());
}

// The numbers of entries like "cpu17" or "node3" (not "cpufreq"), sorted.
std::vector<int> numbered_folders(const fs::path& folder, std::string_view prefix) {
  std::vector<int> numbers;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const auto number = whole_number<int>(std::string_view(name).substr(prefix.size()));
    if (number && *number >= 0) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

int lowest_or(const CpuSet& cpus, int fallback) {
  return cpus.empty() ? fallback : cpus.front();
}

// The lowest CPU that shares the last level of data cache with this one.
int last_level_cache_of(const fs::path& cpu_folder, int cpu) {
  int highest_level = -1;
  int lowest_cpu = cpu;
  for (const int index : numbered_folders(cpu_folder / "cache", "index")) {
    const fs::path cache = cpu_folder / "cache" / fmt::format("index{}", index);
    if (first_line_of(cache / "type") == "Instruction") continue;
    const int level = integer_in(cache / "level").value_or(-1);
    if (level <= highest_level) continue;
    highest_level = level;
    lowest_cpu = lowest_or(cpu_list_in(cache / "shared_cpu_list"), cpu);
  }
  return lowest_cpu;
}

CpuPlace read_cpu_place(const fs::path& cpus_folder, int cpu) {
  const fs::path folder = cpus_folder / fmt::format("cpu{}", cpu);
  CpuPlace place;
  place.cpu = cpu;
  place.core = lowest_or(cpu_list_in(folder / "topology/thread_siblings_list"), cpu);
  place.package = std::max(0, integer_in(folder / "topology/physical_package_id").value_or(0));
  place.cache = last_level_cache_of(folder, cpu);
  return place;
}

}  // namespace

std::optional<CpuSet> parse_cpu_list(std::string_view text) {
  CpuSet cpus;
  text = trim(text);
  if (text.empty()) return cpus;
  for (const std::string_view item : split(text, ',')) {
    const size_t dash = item.find('-');
    const std::optional<int> first = whole_number<int>(item.substr(0, dash));
    const std::optional<int> last =
        dash == std::string_view::npos ? first : whole_number<int>(item.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kCpusMax) return std::nullopt;
    for (int cpu = *first; cpu <= *last; ++cpu)
      cpus.push_back(cpu);
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::string format_cpu_list(const CpuSet& cpus) {
  return rank_ranges(cpus, cpus.size());
}

CpuSet intersect_cpus(const CpuSet& a, const CpuSet& b) {
  CpuSet both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

const CpuPlace* CpuTopology::find_cpu(int cpu) const {
  const auto it = std::ranges::lower_bound(cpus, cpu, {}, &CpuPlace::cpu);
  return it != cpus.end() && it->cpu == cpu ? &*it : nullptr;
}

const NumaNode* CpuTopology::find_node(int node) const {
  const auto it = std::ranges::find(nodes, node, &NumaNode::node);
  return it == nodes.end() ? nullptr : &*it;
}

int CpuTopology::physical_cores(const CpuSet& set) const {
  std::set<int> cores;
  for (const int cpu : set) {
    const CpuPlace* place = find_cpu(cpu);
    cores.insert(place == nullptr ? cpu : place->core);
  }
  return static_cast<int>(cores.size());
}

Result<CpuTopology> read_cpu_topology(const fs::path& sysfs) {
  const fs::path cpus_folder = sysfs / "devices/system/cpu";
  const fs::path nodes_folder = sysfs / "devices/system/node";
  CpuTopology topology;
  CpuSet online = cpu_list_in(cpus_folder / "online");
  if (online.empty()) online = numbered_folders(cpus_folder, "cpu");
  if (online.empty()) {
    return fail(ExitCode::environment,
                fmt::format("cannot read the CPU topology from {}: no CPUs there; mount sysfs, or "
                            "leave --numa-binding and --report-bindings out",
                            cpus_folder.string()));
  }
  for (const int cpu : online)
    topology.cpus.push_back(read_cpu_place(cpus_folder, cpu));
  for (const int node : numbered_folders(nodes_folder, "node")) {
    topology.nodes.push_back(
        {node, cpu_list_in(nodes_folder / fmt::format("node{}", node) / "cpulist")});
  }
  if (topology.nodes.empty()) topology.nodes.push_back({0, online});
  return topology;
}

std::optional<int> pci_numa_node(const std::string& pci_bus_id, const fs::path& sysfs) {
  // The name comes from a driver and becomes part of a path.
  if (pci_bus_id.empty() || pci_bus_id.find('/') != std::string::npos) return std::nullopt;
  const std::optional<int> node = integer_in(sysfs / "bus/pci/devices" / pci_bus_id / "numa_node");
  if (!node) return std::nullopt;
  return std::max(0, *node);
}

void add_locality(DeviceReport& report, const fs::path& sysfs) {
  for (Gpu& gpu : report.gpus)
    gpu.numa_node = pci_numa_node(gpu.pci_bus_id, sysfs);
}

}  // namespace muster
