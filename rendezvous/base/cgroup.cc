#include "rendezvous/base/cgroup.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "rendezvous/base/text.h"

namespace muster {

namespace fs = std::filesystem;

std::vector<fs::path> cgroup_folders(std::string_view controller, const fs::path& root,
                                     std::string_view pid) {
  std::vector<fs::path> found;
  std::ifstream in(root / "proc" / pid / "cgroup");
  // Lines look like "4:cpu,cpuacct:/path" (v1) or "0::/path" (v2).
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::vector<std::string_view> mounts{"", "unified"};
    if (!controllers.empty()) mounts = {controller, controllers};
    if (!controllers.empty() && !std::ranges::count(split(controllers, ','), controller)) continue;
    for (const std::string_view mount : mounts) {
      std::vector<fs::path> down{root / "sys/fs/cgroup" / mount};
      for (const fs::path& part : fs::path(line.substr(second + 1)).relative_path()) {
        if (part == "..") break;  // The group is outside of our cgroup namespace.
        down.push_back(down.back() / part);
      }
      found.insert(found.end(), down.rbegin(), down.rend());
      if (mounts.back() == mounts.front()) break;
    }
  }
  return found;
}

std::optional<int64_t> number_in_file(const fs::path& file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::string_view rest = line;
    if (!rest.starts_with(key)) continue;
    rest.remove_prefix(key.size());
    return take_number<int64_t>(rest);
  }
  return std::nullopt;
}

}  // namespace muster
