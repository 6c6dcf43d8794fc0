// Finds the cgroups of a process, of version 1, version 2, or both at once (hybrid). Their files
// show its limits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace muster {

// Returns the folders of the process's cgroup for that controller and of those above it, up to the
// mount; not all need exist. In a container /proc may show the host's path, which does not exist
// below the mount: then the mount is the container's own group. Version 2 has one folder for all
// controllers, so a file is missing if its controller is off. Tests pass another `root`.
std::vector<std::filesystem::path> cgroup_folders(std::string_view controller,
                                                  const std::filesystem::path& root = "/",
                                                  std::string_view pid = "self");

// Returns the number after `key` ("oom_kill ") at the start of a line; without a key, the one at
// the start of the file. nullopt if there is none ("max") or the file cannot be read.
std::optional<int64_t> number_in_file(const std::filesystem::path& file, std::string_view key = {});

}  // namespace muster
