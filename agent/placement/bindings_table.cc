#include "agent/placement/bindings_table.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "rendezvous/base/error.h"

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

TableRow texts_of(const BindingRow& row) {
  const auto or_dash = [](std::string text) { return text.empty() ? std::string("-") : text; };
  const std::string cores = row.cpus.empty()
                                ? std::string()
                                : fmt::format("{} ({} core{})", format_cpu_list(row.cpus),
                                              row.cores, row.cores == 1 ? "" : "s");
  return {fmt::format("{}", row.local_rank), or_dash(row.device),
          row.numa_node ? fmt::format("{}", *row.numa_node) : "-", or_dash(cores),
          or_dash(row.threads)};
}

}  // namespace

std::string bindings_table(const std::vector<BindingRow>& rows) {
  std::vector<TableRow> lines{{"local rank", "device", "NUMA node", "cores", "threads"}};
  for (const BindingRow& row : rows)
    lines.push_back(texts_of(row));
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

std::vector<BindingRow> binding_rows(const Placement& placement, const CpuTopology& topology,
                                     const CpuSet& allowed,
                                     const std::vector<std::string>& threads) {
  CHECK(threads.size() == placement.workers.size());
  std::vector<BindingRow> rows;
  for (size_t i = 0; i < placement.workers.size(); ++i) {
    const WorkerPlacement& worker = placement.workers[i];
    BindingRow row;
    row.local_rank = static_cast<int>(i);
    row.device = worker.device;
    row.numa_node = worker.numa_node;
    row.cpus = worker.cpus.empty() ? allowed : worker.cpus;
    row.cores = topology.physical_cores(row.cpus);
    row.threads = threads[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace muster
