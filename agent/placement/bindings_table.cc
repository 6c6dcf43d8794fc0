#include "agent/placement/bindings_table.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

namespace muster {
namespace {

using TableRow = std::array<std::string, 5>;

// Columns on a terminal: the continuation bytes of UTF-8 take none. Our texts contain no wide
// characters.
size_t shown_width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

}  // namespace

std::string bindings_table(const Placement& placement, const CpuTopology& topology,
                           const CpuSet& allowed, const std::string& threads) {
  std::vector<TableRow> lines{{"local rank", "device", "NUMA node", "cores", "threads"}};
  for (const WorkerPlacement& worker : placement.workers) {
    const CpuSet& cpus = worker.cpus.empty() ? allowed : worker.cpus;
    const int cores = topology.physical_cores(cpus);
    lines.push_back(
        {std::to_string(lines.size() - 1), or_dash(worker.device),
         worker.numa_node ? std::to_string(*worker.numa_node) : "-",
         fmt::format("{} ({} core{})", format_cpu_list(cpus), cores, cores == 1 ? "" : "s"),
         or_dash(threads)});
  }
  std::array<size_t, 5> widths{};
  for (const TableRow& line : lines) {
    for (size_t i = 0; i < line.size(); ++i)
      widths[i] = std::max(widths[i], shown_width(line[i]));
  }
  std::string table;
  for (const TableRow& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      table += line[i];
      const bool last = i + 1 == line.size();
      table += last ? "\n" : std::string(widths[i] - shown_width(line[i]) + 2, ' ');
    }
  }
  return table;
}

}  // namespace muster
