// The cgroups that a process is in, of version 1, version 2, or both at once (hybrid). Their files
// show the limits that hold for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace muster {

// The folders of that controller's cgroups, the process's own first, then those above up to the
// mount; not all need exist. In a container /proc may show the host's path, which does not exist
// below the mount: that then is the container's own group. Version 2 has one folder for all
// controllers, so a file may be missing where its controller is off. Tests have another `root`.
std::vector<std::filesystem::path> cgroup_folders(std::string_view controller,
                                                  const std::filesystem::path& root = "/",
                                                  std::string_view pid = "self");

// The number after `key` ("oom_kill ") at the start of a line; of an empty key, that the file
// begins with. nullopt: there is none ("max"), or it cannot be read.
std::optional<int64_t> number_in_file(const std::filesystem::path& file, std::string_view key = {});

}  // namespace muster
