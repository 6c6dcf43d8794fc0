#include "agent/control/control_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/process/process_tree.h"
#include "agent/process/worker_hooks.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {
namespace {

constexpr std::size_t kEntryBytesMax = 64 * 1024;
constexpr std::size_t kSocketPathMax = sizeof(sockaddr_un{}.sun_path) - 1;
// The longest name in the folder: "/", ten digits, ".sock".
constexpr std::size_t kSocketNameMax = 16;
constexpr time_t kConnectSecondsMax = 2;

Error control_folder_error(const std::string& path, const std::string& why) {
  return Error{ExitCode::environment,
               fmt::format("cannot use the folder {} for musterctl: {}; remove it or set "
                           "MUSTER_RUN_DIR to a folder of your own",
                           path, why)};
}

// Another user's runtime folder (after su or sudo) must not be written to.
bool is_own_folder(const std::string& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

// True if no other user can put another folder in the place of ours.
bool keeps_what_is_in_it(const std::string& path) {
  struct stat status{};
  if (lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return false;
  const bool is_ours = status.st_uid == geteuid() || status.st_uid == 0;
  return is_ours &&
         ((status.st_mode & (S_IWGRP | S_IWOTH)) == 0 || (status.st_mode & S_ISVTX) != 0);
}

// The pid in "4711.json"; 0: something else.
pid_t pid_of_entry(std::string_view name) {
  const pid_t pid = take_number<pid_t>(name).value_or(0);
  return name == ".json" ? std::max(pid, 0) : 0;
}

JobEntry entry_of_file(const std::string& folder, pid_t pid) {
  const UniqueFd fd(open(control_entry_path(folder, pid).c_str(),
                         O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  JobEntry entry;
  control::read_job_entry(read_up_to(fd.get(), kEntryBytesMax), entry);
  entry.pid = pid;
  entry.socket_path = control_socket_path(folder, pid);
  return entry;
}

std::vector<pid_t> pids_in(const std::string& folder) {
  std::vector<pid_t> pids;
  DIR* directory = opendir(folder.c_str());
  if (directory == nullptr) return pids;
  while (const dirent* item = readdir(directory)) {
    if (const pid_t pid = pid_of_entry(item->d_name); pid > 0) pids.push_back(pid);
  }
  closedir(directory);
  std::ranges::sort(pids);
  return pids;
}

// Only these errors prove that no process listens: a busy job may have a full queue.
bool nobody_listens(int error) {
  return error == ECONNREFUSED || error == ENOENT;
}

// -1 with errno set if the connection was not accepted.
int connect_within(const std::string& socket_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() > kSocketPathMax) {
    errno = ENAMETOOLONG;
    return -1;
  }
  std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit{kConnectSecondsMax, 0};
  if (fd.get() < 0 || setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 ||
      connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return -1;
  }
  return fd.release();
}

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

std::vector<std::string> control_folders(const ControlPlace& place, uid_t uid) {
  if (!place.run_dir.empty())
    return {place.run_dir, fmt::format("{}/muster-{}", place.run_dir, uid)};
  std::vector<std::string> folders;
  const std::string own = place.runtime_dir + "/muster";
  if (place.runtime_dir.starts_with('/') && own.size() + kSocketNameMax <= kSocketPathMax) {
    folders.push_back(own);
  }
  folders.push_back(fmt::format("/tmp/muster-{}", uid));
  return folders;
}

Result<void> check_control_folder(const std::string& path) {
  // Opened once and checked through the descriptor, so that the folder cannot be swapped meanwhile.
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status{};
  if (fd.get() < 0 || fstat(fd.get(), &status) != 0) {
    const bool is_link = errno == ELOOP || errno == ENOTDIR;
    return tl::unexpected(
        control_folder_error(path, is_link ? "it is not a real folder" : std::strerror(errno)));
  }
  if (status.st_uid != geteuid()) {
    return tl::unexpected(
        control_folder_error(path, fmt::format("it belongs to user {}", status.st_uid)));
  }
  if ((status.st_mode & 0077) != 0)
    return tl::unexpected(control_folder_error(path, "other users can access it"));
  return {};
}

Result<std::string> make_control_folder(const ControlPlace& place) {
  Error last;
  for (const std::string& folder : control_folders(place, geteuid())) {
    const bool in_runtime_dir = folder == place.runtime_dir + "/muster";
    if (in_runtime_dir && !is_own_folder(place.runtime_dir)) continue;
    const bool in_run_dir = !place.run_dir.empty() && folder != place.run_dir;
    if (in_run_dir && !keeps_what_is_in_it(place.run_dir)) continue;
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
      last = control_folder_error(folder, std::strerror(errno));
      continue;
    }
    const Result<void> fine = check_control_folder(folder);
    if (fine) return folder;
    last = fine.error();
  }
  return tl::unexpected(last);
}

std::string control_socket_path(const std::string& folder, pid_t pid) {
  return fmt::format("{}/{}.sock", folder, pid);
}

std::string control_entry_path(const std::string& folder, pid_t pid) {
  return fmt::format("{}/{}.json", folder, pid);
}

std::string control_hook_path(const std::string& folder, pid_t pid) {
  return fmt::format("{}/{}.python", folder, pid);
}

Result<void> write_job_entry(const std::string& folder, const JobEntry& entry) {
  const std::string text = control::encode(entry);
  const std::string path = control_entry_path(folder, entry.pid);
  const std::string draft = path + ".new";
  unlink(draft.c_str());
  const UniqueFd fd(
      open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  const bool written = fd.get() >= 0 && write(fd.get(), text.data(), text.size()) ==
                                            static_cast<ssize_t>(text.size());
  if (written && rename(draft.c_str(), path.c_str()) == 0) return {};
  const std::string why = std::strerror(errno);
  unlink(draft.c_str());
  return fail(ExitCode::environment,
              fmt::format("cannot write {}: {}; musterctl will not find this job", path, why));
}

void remove_job_entry(const std::string& folder, pid_t pid) {
  unlink(control_entry_path(folder, pid).c_str());
  unlink(control_socket_path(folder, pid).c_str());
  remove_hooks(control_hook_path(folder, pid));
}

std::vector<JobEntry> running_jobs(const ControlPlace& place) {
  std::vector<JobEntry> jobs;
  for (const std::string& folder : control_folders(place, geteuid())) {
    if (!check_control_folder(folder)) continue;
    for (const pid_t pid : pids_in(folder)) {
      const UniqueFd fd(connect_within(control_socket_path(folder, pid)));
      if (fd.get() >= 0 || !nobody_listens(errno)) {
        jobs.push_back(entry_of_file(folder, pid));
      } else {
        remove_job_entry(folder, pid);
      }
    }
  }
  std::ranges::sort(jobs, {}, &JobEntry::pid);
  return jobs;
}

Result<int> connect_to_job(const std::string& socket_path) {
  const int fd = connect_within(socket_path);
  if (fd >= 0) return fd;
  return fail(ExitCode::environment,
              fmt::format("cannot reach the job at {}: {}; it may just have ended: see musterctl "
                          "list",
                          socket_path, std::strerror(errno)));
}

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
