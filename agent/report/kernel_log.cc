#include "agent/report/kernel_log.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string_view>
#include <tuple>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "agent/process/process_tree.h"
#include "agent/report/remedies.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

constexpr size_t kRecordBytesMax = 8192;  // The kernel's CONSOLE_EXT_LOG_MAX.
constexpr size_t kCommBytes = 15;
constexpr size_t kXidsMax = 64;
constexpr size_t kXidTextMax = 160;
constexpr int kXidOfCleanup = 45;  // Clean-up of a GPU after a process, whatever it died of.

std::string link_target(const std::filesystem::path& path) {
  std::string target(64, '\0');
  const ssize_t size = ::readlink(path.c_str(), target.data(), target.size());
  target.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return target;
}

// The cgroup as the kernel logs it: that of "4:memory:/path" (v1), else of "0::/path" (v2).
std::string memory_cgroup_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string found;
  for (std::string line; std::getline(in, line);) {
    const bool is_unified = line.starts_with("0::");
    const auto path = text_after(line, is_unified ? "::" : "memory:");
    if (path && !is_unified) return std::string(*path);
    if (path) found = *path;
  }
  return found;
}

std::optional<OomVictim> victim_of(std::string_view record) {
  std::optional<std::string_view> victim = text_after(record, "Killed process ");
  const std::optional<pid_t> pid = victim ? take_number<pid_t>(*victim) : std::nullopt;
  if (!pid) return std::nullopt;
  const std::string_view name = text_after(*victim, "(").value_or("");
  return OomVictim{*pid, printable(name.substr(0, name.find(')')), kCommBytes)};
}

// Returns the thread that overflowed its stack: the fault's address is a little below the stack
// pointer, or above it if a function has moved that over large arrays.
std::optional<pid_t> overflowed_in(std::string_view record) {
  constexpr std::string_view kSegfault = "]: segfault at ";
  constexpr uint64_t kBelow = 64 * 1024;
  constexpr uint64_t kAbove = 8 * 1024 * 1024;
  const size_t at = record.find(kSegfault);
  if (at == std::string_view::npos) return std::nullopt;
  const auto hex = [](std::string_view text) {
    return whole_number<uint64_t>(text.substr(0, text.find(' ')), 16);
  };
  const std::string_view text = record.substr(at + kSegfault.size());
  const std::optional<uint64_t> address = hex(text);
  const std::optional<uint64_t> stack = hex(text_after(text, " sp ").value_or(""));
  if (!address || !stack || *address + kBelow < *stack || *address > *stack + kAbove)
    return std::nullopt;
  const std::string_view before = record.substr(0, at);
  return whole_number<pid_t>(before.substr(before.rfind('[') + 1));
}

// Takes the field `name` off the front and returns its value; empty if `text` begins otherwise.
std::string_view cut_field(std::string_view& text, std::string_view name) {
  if (!text.starts_with(name)) return {};
  const size_t end = std::min({text.find(", "), text.find(". "), text.size()});
  const std::string_view value = text.substr(name.size(), end - name.size());
  text.remove_prefix(std::min(end + 2, text.size()));
  return value;
}

// Parses "NVRM: Xid (PCI:0000:c1:00): 31, pid=4711, name=python3, Ch 0000000b, intr 00000000. MMU
// Fault: ..."; any field may be missing, and the pid may be '<unknown>'.
std::optional<Xid> xid_in(std::string_view record) {
  const std::optional<std::string_view> found = text_after(record, "NVRM: Xid (PCI:");
  if (!found) return std::nullopt;
  const std::string_view line = found->substr(0, found->find('\n'));
  std::optional<std::string_view> rest = text_after(line, "): ");
  const std::optional<int> number = rest ? take_number<int>(*rest) : std::nullopt;
  if (!number) return std::nullopt;
  if (rest->starts_with(", ")) rest->remove_prefix(2);
  std::string_view pid = cut_field(*rest, "pid=");
  for (const char* field : {"name=", "channel ", "Ch ", "intr "})
    cut_field(*rest, field);
  std::string_view text = rest->substr(0, rest->find(". "));
  if (text.ends_with('.')) text.remove_suffix(1);
  return Xid{.number = *number,
             .pid = take_number<pid_t>(pid).value_or(0),
             .gpu = printable(line.substr(0, line.find(')')), 16),
             .text = printable(text, kXidTextMax)};
}

}  // namespace

KernelLog::KernelLog(std::string path, const std::filesystem::path& root) : path_(std::move(path)) {
  names_our_pids_ = link_target(root / "proc/self/ns/pid") == kFirstPidNamespace;
  memory_cgroup_ = memory_cgroup_in(root / "proc/self/cgroup");
  mark();
}

void KernelLog::note_victim(std::string_view record) {
  if (const auto group = text_after(record, ",task_memcg=")) {
    const size_t end = group->find(",task=");
    const std::string_view name = group->substr(0, end);
    std::string_view pid = text_after(*group, ",pid=").value_or("");
    next_victim_ = take_number<pid_t>(pid).value_or(0);
    next_is_own_ = name.size() > 1 && name == memory_cgroup_;
  }
  std::optional<OomVictim> victim = victim_of(record);
  if (!victim) return;
  victim->is_own = next_is_own_ && victim->pid == next_victim_;
  killed_.push_back(*std::move(victim));
}

void KernelLog::mark() {
  if (!names_our_pids_) return;
  if (!file_) file_ = UniqueFd(::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (file_ && ::lseek(file_.get(), 0, SEEK_END) < 0) file_.reset();
  killed_.clear();
  overflowed_.clear();
  xids_.clear();
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
    const std::string_view message(record.data(), static_cast<size_t>(got));
    note_victim(message);
    if (const auto pid = overflowed_in(message)) overflowed_.push_back(*pid);
    if (auto xid = xid_in(message)) keep(*std::move(xid));
  }
}

void KernelLog::keep(Xid xid) {
  const bool known = std::ranges::any_of(xids_, [&xid](const Xid& other) {
    return std::tie(other.pid, other.number, other.gpu) == std::tie(xid.pid, xid.number, xid.gpu);
  });
  if (known || xids_.size() >= kXidsMax || xid.number == kXidOfCleanup) return;
  xids_.push_back(std::move(xid));
}

std::optional<bool> KernelLog::oom_killed(pid_t pid) {
  if (!file_) return std::nullopt;
  read();
  if (std::ranges::find(killed_, pid, &OomVictim::pid) != killed_.end()) return true;
  return lost_ ? std::nullopt : std::optional(false);
}

const std::vector<OomVictim>& KernelLog::oom_victims() {
  if (file_) read();
  return killed_;
}

bool KernelLog::stack_overflowed(pid_t pid) {
  if (file_) read();
  return std::ranges::find(overflowed_, pid) != overflowed_.end();
}

std::optional<Xid> KernelLog::xid_of(pid_t pid) {
  if (!file_) return std::nullopt;
  read();
  const auto weight = [pid](const Xid& xid) {
    // A memory fault that names a process concerns that process alone.
    const bool of_all = xid_of_hardware(xid.number) && (xid.pid == 0 || !xid_of_memory(xid.number));
    return std::tuple(xid.pid == pid, of_all, xid.pid == 0);
  };
  const auto found = std::ranges::max_element(xids_, {}, weight);
  if (found == xids_.end() || weight(*found) == std::tuple(false, false, false))
    return std::nullopt;
  return *found;
}

}  // namespace muster
