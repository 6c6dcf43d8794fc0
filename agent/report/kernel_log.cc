#include "agent/report/kernel_log.h"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

constexpr size_t kRecordBytesMax = 8192;  // The kernel's CONSOLE_EXT_LOG_MAX.

// The kernel's PROC_PID_INIT_INO: the same on every machine since Linux 3.8.
constexpr std::string_view kFirstPidNamespace = "pid:[4026531836]";

std::string link_target(const std::string& path) {
  std::string target(64, '\0');
  const ssize_t size = ::readlink(path.c_str(), target.data(), target.size());
  target.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return target;
}

std::optional<pid_t> victim_of(std::string_view record) {
  std::optional<std::string_view> victim = text_after(record, "Killed process ");
  return victim ? take_number<pid_t>(*victim) : std::nullopt;
}

}  // namespace

KernelLog::KernelLog(std::string path, const std::string& proc_root) : path_(std::move(path)) {
  names_our_pids_ = link_target(proc_root + "/self/ns/pid") == kFirstPidNamespace;
  mark();
}

void KernelLog::mark() {
  if (!names_our_pids_) return;
  if (!file_) file_ = UniqueFd(::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (file_ && ::lseek(file_.get(), 0, SEEK_END) < 0) file_.reset();
  killed_.clear();
  lost_ = false;
}

void KernelLog::read() {
  std::string record(kRecordBytesMax, '\0');
  while (true) {
    const ssize_t got = ::read(file_.get(), record.data(), record.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EPIPE) {  // The next read continues with the oldest record left.
      lost_ = true;
      continue;
    }
    if (got < 0 && errno != EAGAIN) lost_ = true;
    if (got <= 0) return;
    if (const auto pid = victim_of({record.data(), static_cast<size_t>(got)}))
      killed_.push_back(*pid);
  }
}

std::optional<bool> KernelLog::oom_killed(pid_t pid) {
  if (!file_) return std::nullopt;
  read();
  if (std::ranges::find(killed_, pid) != killed_.end()) return true;
  return lost_ ? std::nullopt : std::optional(false);
}

}  // namespace muster
