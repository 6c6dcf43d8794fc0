#include "agent/stacks/stack_child.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/control/control_protocol.h"
#include "agent/process/helper_command.h"
#include "agent/process/process_tree.h"
#include "agent/process/spawn.h"
#include "agent/report/text.h"
#include "agent/stacks/stack_sources.h"
#include "rendezvous/base/stack_signal.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/process_sockets.h"

namespace muster {
namespace {

using std::chrono::steady_clock;

constexpr auto kPySpyPatience = std::chrono::seconds(3);
constexpr auto kDumpPatience = std::chrono::seconds(1);
constexpr auto kDumpQuiet = std::chrono::milliseconds(30);
constexpr size_t kOutputBytesMax = 4 << 20;

// The main thread's name ("pt_main_thread" in PyTorch) shows it in a process that hides its files.
bool runs_python(pid_t pid) {
  std::error_code error;
  const std::string program =
      std::filesystem::read_symlink(fmt::format("/proc/{}/exe", pid), error).filename();
  return starts_with_any(program, {"python", "pypy"}) ||
         starts_with_any(read_process_file(pid, "comm"), {"python", "pt_main"}) ||
         contains(read_process_file(pid, "maps", kOutputBytesMax), "/libpython");
}

// True if its real, effective, saved and file system uids are all ours.
bool runs_as_this_user(pid_t pid) {
  const uid_t user = geteuid();
  return status_field(read_process_file(pid, "status", kStatusBytesMax), "\nUid:") ==
         fmt::format("{0}\t{0}\t{0}\t{0}", user);
}

// Looks on PATH, then beside the worker's own Python; empty: not installed. A worker of another
// user must not choose which program we run.
std::string find_py_spy(pid_t pid) {
  const char* const path = std::getenv("PATH");
  const std::string found = find_on_path("py-spy", path == nullptr ? "/bin:/usr/bin" : path);
  if (!found.empty() || !runs_as_this_user(pid)) return found;
  const std::string arguments = read_process_file(pid, "cmdline", kStatusBytesMax);
  const std::filesystem::path python(arguments.c_str());
  const std::filesystem::path file = python.parent_path() / "py-spy";
  return python.is_absolute() && is_executable_file(file) ? file.string() : "";
}

// "Permission denied" from py-spy's line "Error: Permission denied"; else the first line.
std::string complaint_in(std::string_view text) {
  for (const std::string_view line : split(text, '\n')) {
    if (line.starts_with("Error: ")) return clean_line(line.substr(7), 120);
  }
  const std::string first = clean_line(split(text, '\n').front(), 120);
  return first.empty() ? "it does not answer" : first;
}

Result<std::vector<ThreadStack>> by_py_spy(const std::string& program, pid_t pid) {
  const Result<HelperOutcome> ran =
      run_helper({program, "dump", "--nonblocking", "--json", "--pid", std::to_string(pid)},
                 current_environment(), kPySpyPatience, HelperStderr::printed);
  if (!ran) return fail(ExitCode::environment, "py-spy: " + ran.error().message);
  auto stacks = stacks_of_py_spy(ran->printed);
  if (stacks && !stacks->empty()) return *std::move(stacks);
  return fail(ExitCode::environment, "py-spy: " + complaint_in(ran->printed));
}

int64_t size_of(const UniqueFd& file) {
  struct stat status{};
  return fstat(file.get(), &status) == 0 ? status.st_size : 0;
}

// Waits until the file has grown and then stays the same for kDumpQuiet, at most kDumpPatience.
void wait_for_dump(const UniqueFd& file, int64_t before) {
  const auto limit = steady_clock::now() + kDumpPatience;
  int64_t size = before;
  auto grown = steady_clock::now();
  while (steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const int64_t now = size_of(file);
    if (now != size) grown = steady_clock::now();
    size = now;
    if (size > before && steady_clock::now() - grown > kDumpQuiet) return;
  }
}

// False if the program has closed the file: the descriptor that faulthandler writes to may be
// another file's by now. True if /proc does not show its files.
bool has_open(pid_t pid, const UniqueFd& file) {
  std::error_code gone;
  const std::string path =
      std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", file.get()), gone);
  bool found = false;
  const bool is_shown =
      for_each_open_file(std::to_string(pid), [&](const std::string&, const std::string& target) {
        found = target == path;
        return !found;
      });
  return found || !is_shown;
}

// Signals the main thread, which prints only its own frames: running threads cannot be walked.
Result<std::vector<ThreadStack>> by_signal(pid_t pid, const std::string& path) {
  const UniqueFd file(path.empty() ? -1 : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  const std::string status = read_process_file(pid, "status", kStatusBytesMax);
  const uint64_t caught = signal_mask(status, "\nSigCgt:");
  if (!file || !has_signal(caught, stack_signal()) || !has_open(pid, file)) {
    return fail(ExitCode::environment,
                "no Python frames: py-spy is not installed (pip install py-spy), and the program "
                "does not print them itself");
  }
  const std::string_view state = status_field(status, "\nState:");
  if (state.starts_with('T'))
    return fail(ExitCode::environment, fmt::format("no Python frames: it is in state {}", state));
  const int64_t before = size_of(file);
  lseek(file.get(), before, SEEK_SET);
  if (syscall(SYS_tgkill, pid, pid, stack_signal()) != 0)
    return fail(ExitCode::environment,
                fmt::format("no Python frames: cannot signal it: {}", std::strerror(errno)));
  wait_for_dump(file, before);
  std::vector<ThreadStack> stacks =
      stacks_of_faulthandler(read_up_to(file.get(), kOutputBytesMax), pid);
  if (!stacks.empty()) return stacks;
  return fail(ExitCode::environment,
              fmt::format("no Python frames: it did not print them within {}",
                          duration_text(kDumpPatience)));
}

class Answer {
 public:
  explicit Answer(pid_t process) { stacks_.process = process; }

  void add(std::string_view missing) {
    if (!stacks_.missing.empty()) stacks_.missing += "; ";
    stacks_.missing += missing;
  }
  RankStacks& stacks() { return stacks_; }
  void tell() const {
    const std::string line = control::encode(control::Reply(control::Stacks{{stacks_}, {}}));
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fflush(stdout);
  }

 private:
  RankStacks stacks_;
};

Result<std::vector<ThreadStack>> python_stacks(pid_t pid, std::string_view look,
                                               const std::string& path) {
  if (look == "brief") {  // py-spy may take longer than the caller has.
    Result<std::vector<ThreadStack>> printed = by_signal(pid, path);
    if (printed) return printed;
  }
  const std::string py_spy = find_py_spy(pid);
  Result<std::vector<ThreadStack>> stacks =
      py_spy.empty() ? fail(ExitCode::environment, "no Python frames without py-spy")
                     : by_py_spy(py_spy, pid);
  if (stacks || look != "thorough") return stacks;
  Result<std::vector<ThreadStack>> printed = by_signal(pid, path);
  return printed || py_spy.empty() ? printed : stacks;
}

// The main thread's; empty if they cannot be read.
std::vector<StackFrame> frames_of_child(pid_t pid, std::string_view look) {
  const std::optional<ProcessEntry> entry = look_at_entry(pid);
  if (!entry || entry->state == 'D') return {};  // Whatever reads its memory may get stuck, too.
  std::vector<ThreadStack> threads;
  if (runs_python(pid)) threads = python_stacks(pid, "quiet", "").value_or(threads);
  std::string missing;
  if (threads.empty() && look == "thorough")
    threads = native_stacks(pid, missing).value_or(threads);
  threads = merge_stacks({}, std::move(threads), pid);
  const bool has_main = !threads.empty() && threads.front().thread == pid;
  return has_main ? std::move(threads.front().frames) : std::vector<StackFrame>();
}

}  // namespace

int stacks_child_main(const std::vector<std::string>& args) {
  const auto pid = args.size() < 2 ? std::nullopt : whole_number<pid_t>(args[1]);
  if (!pid || *pid <= 0) return static_cast<int>(ExitCode::usage);
  const bool quiet = args[0] == "quiet";
  const bool brief = args[0] == "brief";
  // Do not let libdw download debug information.
  unsetenv("DEBUGINFOD_URLS");
  Answer answer(*pid);
  std::vector<ThreadStack> python;
  if (runs_python(*pid)) {
    Result<std::vector<ThreadStack>> read =
        python_stacks(*pid, args[0], args.size() > 2 ? args[2] : "");
    if (read) {
      python = *std::move(read);
    } else {
      answer.add(read.error().message);
    }
  }
  RankStacks& stacks = answer.stacks();
  stacks.threads = merge_stacks({}, python, *pid);
  answer.tell();
  if (!quiet && (!brief || python.empty())) {
    std::string missing;
    Result<std::vector<ThreadStack>> native = native_stacks(*pid, missing);
    if (native && !missing.empty()) answer.add(missing);
    if (!native) {
      answer.add(native.error().message);
      native.emplace();
    }
    stacks.threads = merge_stacks(*std::move(native), std::move(python), *pid);
    answer.tell();
  }
  for (size_t i = 3; i < args.size(); ++i) {
    const pid_t child = whole_number<pid_t>(args[i]).value_or(0);
    stacks.processes.push_back(
        {.pid = child, .name = {}, .frames = frames_of_child(child, args[0])});
    answer.tell();
  }
  return 0;
}

}  // namespace muster
