#include "agent/placement/bindings_table.h"

#include <vector>

#include <fmt/format.h>

#include "agent/report/text.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

}  // namespace

std::string bindings_table(const Placement& placement, const CpuTopology& topology,
                           const CpuSet& allowed, const std::string& threads) {
  std::vector<std::vector<std::string>> lines{
      {"local rank", "device", "NUMA node", "cores", "threads"}};
  for (const WorkerPlacement& worker : placement.workers) {
    const CpuSet& cpus = worker.cpus.empty() ? allowed : worker.cpus;
    const int cores = topology.physical_cores(cpus);
    lines.push_back({std::to_string(lines.size() - 1), or_dash(worker.device),
                     worker.numa_node ? std::to_string(*worker.numa_node) : "-",
                     fmt::format("{} ({})", format_cpu_list(cpus), counted(cores, "core")),
                     or_dash(threads)});
  }
  return table_text(lines);
}

}  // namespace muster
