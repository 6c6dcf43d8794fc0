#include "agent/process/job_cgroup.h"

#include <fstream>
#include <sstream>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace muster {
namespace {

// The mount point of cgroup2. The fields of mountinfo are "id parent dev root mountpoint options
// ... - type source ...".
std::optional<std::string> cgroup2_mount() {
  std::ifstream mounts("/proc/self/mountinfo");
  std::string line;
  while (std::getline(mounts, line)) {
    const size_t dash = line.find(" - cgroup2 ");
    if (dash == std::string::npos) continue;
    std::istringstream words(line);
    std::string id, parent, device, root, mount_point;
    words >> id >> parent >> device >> root >> mount_point;
    return mount_point;
  }
  return std::nullopt;
}

std::optional<std::string> own_cgroup() {
  std::ifstream memberships("/proc/self/cgroup");
  std::string line;
  while (std::getline(memberships, line)) {
    if (line.starts_with("0::/")) return line.substr(3);
  }
  return std::nullopt;
}

bool is_delegated(const std::string& folder) {
  struct stat info{};
  if (stat(folder.c_str(), &info) != 0 || access(folder.c_str(), W_OK) != 0) return false;
  // Moving a process needs write permission here too (cgroups(7), "delegation containment").
  if (access((folder + "/cgroup.procs").c_str(), W_OK) != 0) return false;
  if (geteuid() != 0 && info.st_uid == geteuid()) return true;
  char mark[4] = {};
  for (const char* name : {"trusted.delegate", "user.delegate"}) {
    if (getxattr(folder.c_str(), name, mark, sizeof mark) == 1 && mark[0] == '1') return true;
  }
  return false;
}

}  // namespace

std::optional<std::string> JobCgroup::path_for(pid_t pid) {
  const auto mount = cgroup2_mount();
  const auto own = own_cgroup();
  if (!mount || !own) return std::nullopt;
  const std::string parent = *own == "/" ? *mount : *mount + *own;
  if (!is_delegated(parent)) return std::nullopt;
  return parent + "/muster-" + std::to_string(pid);
}

std::unique_ptr<JobCgroup> JobCgroup::create() {
  const auto wanted = path_for(getpid());
  if (!wanted || mkdir(wanted->c_str(), 0755) != 0) return nullptr;
  std::unique_ptr<JobCgroup> cgroup(new JobCgroup(*wanted));
  return cgroup->procs_ && cgroup->kill_ ? std::move(cgroup) : nullptr;
}

JobCgroup::JobCgroup(std::string path)
    : path_(std::move(path)),
      procs_(open((path_ + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC)),
      kill_(open((path_ + "/cgroup.kill").c_str(), O_WRONLY | O_CLOEXEC)) {}

JobCgroup::~JobCgroup() {
  rmdir(path_.c_str());
}

void JobCgroup::kill() const {
  [[maybe_unused]] const ssize_t n = write(kill_.get(), "1", 1);
}

}  // namespace muster
