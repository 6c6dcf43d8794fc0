#include "agent/placement/cpu_list.h"

#include <algorithm>
#include <iterator>

#include "agent/report/text.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

// No Linux kernel can be built for more CPUs than this; a larger number in a list is invalid and
// must not make us allocate gigabytes.
constexpr int kCpusMax = 1 << 16;

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

}  // namespace muster
