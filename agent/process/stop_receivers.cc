#include "agent/process/stop_receivers.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <string_view>

#include <fmt/format.h>
#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

constexpr std::array<std::string_view, 8> kShells{"sh",  "bash", "dash", "zsh",
                                                  "ksh", "mksh", "ash",  "busybox"};
// The first two pass a signal on to their whole process group, so the program that saves would get
// it twice and its children too. make passes SIGTERM on to its children, and assumes that they have
// had SIGINT already.
constexpr std::array<std::string_view, 3> kPassOnToAll{"timeout", "dumb-init", "make"};

bool passes_on_to_all(const SignalUse& use) {
  return std::ranges::count(kPassOnToAll, use.program) > 0;
}

bool handles(const SignalUse& use, int signal) {
  if (has_signal(use.caught, signal))
    return signal != SIGINT || is_shell(use) || !use.waits || has_signal(use.caught, SIGTERM);
  return has_signal(use.blocked, signal) && !has_signal(use.ignored, signal) && !use.waits;
}

class ReceiverSearch {
 public:
  ReceiverSearch(const std::vector<ProcessEntry>& tree, int signal,
                 const std::function<SignalUse(pid_t)>& use)
      : tree_(tree), signal_(signal), use_(use) {}

  // Returns false if no process at or below `pid` handles the signal.
  bool find(pid_t pid) {
    const SignalUse use = use_(pid);
    const bool handles = muster::handles(use, signal_);
    if (!is_shell(use) && !passes_on_to_all(use) && (handles || !use.waits)) {
      if (handles) found_.receivers.push_back(pid);
      return handles;
    }
    const bool has_trap = handles && is_shell(use);
    bool below = false;
    for (const ProcessEntry& child : tree_) {
      if (child.parent != pid) continue;
      if (has_trap && is_in_background(use, use_(child.pid))) {
        // Every shell catches SIGINT: that alone does not show that it has a trap.
        if (signal_ != SIGINT || has_signal(use.caught, SIGTERM))
          found_.left_to_traps.push_back(child.pid);
        continue;
      }
      const bool child_handles = find(child.pid);
      if (has_trap && !child_handles) add_all(child.pid);
      below = below || child_handles;
    }
    if (has_trap) found_.receivers.push_back(pid);
    return below || has_trap;
  }

  StopReceivers found() && { return std::move(found_); }

 private:
  // Shells without job control start background commands with SIGINT ignored and no input.
  static bool is_in_background(const SignalUse& shell, const SignalUse& child) {
    return child.own_null ||
           (has_signal(child.ignored, SIGINT) && !has_signal(shell.ignored, SIGINT));
  }

  void add_all(pid_t pid) {
    found_.receivers.push_back(pid);
    for (const ProcessEntry& child : tree_) {
      if (child.parent == pid) add_all(child.pid);
    }
  }

  const std::vector<ProcessEntry>& tree_;
  const int signal_;
  const std::function<SignalUse(pid_t)>& use_;
  StopReceivers found_;
};

std::string base_name_of_link(const std::string& path) {
  std::array<char, 4096> target{};
  const ssize_t n = readlink(path.c_str(), target.data(), target.size());
  const std::string_view all(target.data(), static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return std::string(all.substr(all.rfind('/') + 1));
}

}  // namespace

bool is_shell(const SignalUse& use) {
  return std::ranges::count(kShells, use.program) > 0;
}

SignalUse signal_use_of(pid_t pid) {
  const std::string folder = fmt::format("/proc/{}/", pid);
  const std::string status = read_process_file(pid, "status", kStatusBytesMax);
  const auto parent = whole_number<pid_t>(status_field(status, "\nPPid:"));
  SignalUse use;
  use.program = base_name_of_link(folder + "exe");
  use.caught = signal_mask(status, "\nSigCgt:");
  use.ignored = signal_mask(status, "\nSigIgn:");
  use.blocked = signal_mask(status, "\nSigBlk:");
  use.waits = read_process_file(pid, "wchan").starts_with("do_wait");
  use.own_null = base_name_of_link(folder + "fd/0") == "null" && parent &&
                 syscall(SYS_kcmp, *parent, pid, KCMP_FILE, 0, 0) > 0;
  return use;
}

bool may_handle(const SignalUse& use, int signal) {
  return use.program.empty() || handles(use, signal) || use.waits || is_shell(use) ||
         passes_on_to_all(use);
}

StopReceivers stop_receivers(const std::vector<ProcessEntry>& tree, pid_t root, int signal,
                             const std::function<SignalUse(pid_t)>& use) {
  ReceiverSearch search(tree, signal, use);
  search.find(root);
  return std::move(search).found();
}

}  // namespace muster
