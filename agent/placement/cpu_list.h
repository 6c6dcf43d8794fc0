// Sets of CPUs in the kernel's own notation, "0-3,8,10-11". A set is a sorted vector without
// duplicates, which prints and compares predictably. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

using CpuSet = std::vector<int>;

// nullopt if the text is not such a list; white space at the ends and the empty list are accepted.
std::optional<CpuSet> parse_cpu_list(std::string_view text);

// "0-3,8"; empty for the empty set.
std::string format_cpu_list(const CpuSet& cpus);

CpuSet intersect_cpus(const CpuSet& a, const CpuSet& b);

}  // namespace muster
