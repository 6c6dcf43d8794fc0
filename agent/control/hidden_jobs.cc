#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/control/control_folder.h"
#include "agent/process/process_tree.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

std::string variable_in(std::string_view environment, std::string_view name) {
  for (const std::string_view entry : split(environment, '\0')) {
    if (entry.starts_with(name)) return std::string(entry.substr(name.size()));
  }
  return {};
}

ControlPlace control_place_of(pid_t pid) {
  const std::string environment = read_process_file(pid, "environ", size_t{1} << 20);
  return {variable_in(environment, "MUSTER_RUN_DIR="),
          variable_in(environment, "XDG_RUNTIME_DIR=")};
}

// The pid in the process's own PID namespace, by which its files are named.
pid_t inner_pid(pid_t pid) {
  const std::string status = read_process_file(pid, "status", kStatusBytesMax);
  const std::string_view pids = status_field(status, "\nNSpid:");
  return whole_number<pid_t>(pids.substr(pids.rfind('\t') + 1)).value_or(pid);  // npos + 1 is 0.
}

bool sees_our_files(pid_t pid) {
  std::error_code error;
  const fs::path theirs = fs::read_symlink(fmt::format("/proc/{}/ns/mnt", pid), error);
  return error || theirs == fs::read_symlink("/proc/self/ns/mnt", error);
}

std::string why_unreachable(pid_t pid, const ControlPlace& theirs) {
  if (!sees_our_files(pid))
    return fmt::format("it is in another container: run musterctl there (nsenter -t {} -a)", pid);
  for (const std::string& folder : control_folders(theirs, geteuid())) {
    if (access(control_socket_path(folder, pid).c_str(), F_OK) == 0)
      return fmt::format("its folder is {}: set {} as it was set for it", folder,
                         theirs.run_dir.empty() ? "XDG_RUNTIME_DIR" : "MUSTER_RUN_DIR");
  }
  const Result<std::string> folder = make_control_folder(theirs);
  if (!folder) return folder.error().message;
  const bool writable = access(folder->c_str(), W_OK) == 0;
  return fmt::format(
      "it has no socket in {}: {}; start jobs with MUSTER_RUN_DIR set to a folder of your own",
      *folder, writable ? "it has just begun, or could not use that folder" : std::strerror(errno));
}

}  // namespace

std::vector<HiddenJob> hidden_jobs(const ControlPlace& place, std::span<const JobEntry> listed) {
  std::vector<HiddenJob> hidden;
  for (const ProcessEntry& agent : descendants_of(0, {})) {
    const pid_t pid = agent.parent;
    struct stat owner{};
    if (agent.name != "muster-agent" || is_over(agent) ||
        stat(fmt::format("/proc/{}", pid).c_str(), &owner) != 0 ||
        std::ranges::count(listed, inner_pid(pid), &JobEntry::pid) > 0)
      continue;
    const bool foreign = owner.st_uid != geteuid();
    const ControlPlace theirs = foreign ? ControlPlace{} : control_place_of(pid);
    if (!place.run_dir.empty() && theirs.run_dir != place.run_dir) continue;
    hidden.push_back(
        {pid, foreign,
         foreign ? fmt::format("it is a job of user {}: run musterctl as that user", owner.st_uid)
                 : why_unreachable(pid, theirs)});
  }
  return hidden;
}

}  // namespace muster
