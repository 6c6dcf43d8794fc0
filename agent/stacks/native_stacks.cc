#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "agent/process/process_tree.h"
#include "agent/stacks/stack_sources.h"
#include "rendezvous/base/symbols.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

using std::chrono::steady_clock;

// Limit for all threads together; the threads that are left then are omitted.
constexpr auto kUnwindPatience = std::chrono::seconds(3);
// Limit for one thread to stop.
constexpr auto kHoldPatience = std::chrono::milliseconds(200);

// The part of libdwfl's interface (version ELFUTILS_0.158) that we need, declared from its
// documentation: most machines have the library without its header.
namespace dwfl {
using Address = uint64_t;
using Session = struct OpaqueSession;
using Module = struct OpaqueModule;
using Frame = struct OpaqueFrame;
using Line = struct OpaqueLine;
using FindElf = int(Module*, void**, const char*, Address, char**, void**);
using FindDebugInfo = int(Module*, void**, const char*, Address, const char*, const char*, uint32_t,
                          char**);

struct Callbacks {  // Dwfl_Callbacks
  FindElf* find_elf;
  FindDebugInfo* find_debuginfo;
  void* section_address;
  char** debuginfo_path;
};

struct Functions {
  Symbols symbols;
  Session* (*begin)(const Callbacks*) = symbols["dwfl_begin"];
  void (*end)(Session*) = symbols["dwfl_end"];
  int (*report)(Session*, pid_t) = symbols["dwfl_linux_proc_report"];
  int (*report_end)(Session*, void*, void*) = symbols["dwfl_report_end"];
  int (*attach)(Session*, pid_t, bool is_held) = symbols["dwfl_linux_proc_attach"];
  int (*frames)(Session*, pid_t, int (*)(Frame*, void*), void*) = symbols["dwfl_getthread_frames"];
  bool (*frame_pc)(Frame*, Address*, bool*) = symbols["dwfl_frame_pc"];
  Module* (*module_at)(Session*, Address) = symbols["dwfl_addrmodule"];
  const char* (*module_info)(Module*, void***, Address*, Address*, Address*, Address*, const char**,
                             const char**) = symbols["dwfl_module_info"];
  const char* (*name_at)(Module*, Address) = symbols["dwfl_module_addrname"];
  Line* (*line_at)(Module*, Address) = symbols["dwfl_module_getsrc"];
  const char* (*line_info)(Line*, Address*, int*, int*, void*, void*) = symbols["dwfl_lineinfo"];
  FindElf* find_elf = symbols["dwfl_linux_proc_find_elf"];
  FindDebugInfo* find_debuginfo = symbols["dwfl_standard_find_debuginfo"];
};
}  // namespace dwfl

// The library is never closed: the process ends soon.
std::optional<dwfl::Functions> open_libdw() {
  void* const library = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  dwfl::Functions api{Symbols(library)};
  return api.symbols.missing().empty() ? std::optional(std::move(api)) : std::nullopt;
}

// Stops a thread for as long as the object lives, by PTRACE_SEIZE and PTRACE_INTERRUPT: these send
// no signal, so nothing is left behind if this process is killed (ptrace(2)).
class HeldThread {
 public:
  explicit HeldThread(pid_t thread) : thread_(thread) {
    is_seized_ = ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) == 0;
    if (!is_seized_ || ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0) {
      errno_ = errno;
      return;
    }
    wait();
  }
  ~HeldThread() {
    if (is_seized_) ptrace(PTRACE_DETACH, thread_, nullptr, signal_);
  }
  HeldThread(HeldThread&&) = delete;

  bool is_held() const { return is_held_; }
  int error() const { return errno_; }  // 0: it did not stop in time.

 private:
  void wait() {
    const auto limit = steady_clock::now() + kHoldPatience;
    int status = 0;
    for (;;) {
      const pid_t pid = waitpid(thread_, &status, __WALL | WNOHANG);
      if (pid == thread_ || pid < 0 || steady_clock::now() > limit) {
        is_held_ = pid == thread_ && WIFSTOPPED(status);
        break;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    // It stopped for a signal of its own, not for our interrupt: deliver the signal on detach.
    if (is_held_ && status >> 16 == 0)
      signal_ = reinterpret_cast<void*>(intptr_t{WSTOPSIG(status)});
  }

  const pid_t thread_;
  bool is_seized_ = false;
  bool is_held_ = false;
  int errno_ = 0;
  void* signal_ = nullptr;
};

class Unwinder {
 public:
  Unwinder(const dwfl::Functions& api, pid_t pid)
      : api_(api), callbacks_{api.find_elf, api.find_debuginfo, nullptr, nullptr} {
    session_ = api_.begin(&callbacks_);
    is_ready_ = session_ != nullptr && api_.report(session_, pid) == 0 &&
                api_.report_end(session_, nullptr, nullptr) == 0 &&
                api_.attach(session_, pid, /*is_held=*/true) == 0;
  }
  ~Unwinder() {
    if (session_ != nullptr) api_.end(session_);
  }
  Unwinder(Unwinder&&) = delete;

  bool is_ready() const { return is_ready_; }

  // Code addresses, innermost first. REQUIRES: the thread is held.
  std::vector<dwfl::Address> addresses(pid_t thread) {
    Walk walk{*this, {}};
    api_.frames(session_, thread, on_frame, &walk);
    return std::move(walk.found);
  }

  StackFrame name(dwfl::Address address) {
    const auto [known, is_new] = names_.try_emplace(address);
    if (is_new) known->second = look_up(address);
    return known->second;
  }

 private:
  struct Walk {
    Unwinder& unwinder;
    std::vector<dwfl::Address> found;
  };

  static int on_frame(dwfl::Frame* frame, void* argument) {
    constexpr int kGoOn = 0;  // DWARF_CB_OK
    constexpr int kStop = 1;  // DWARF_CB_ABORT
    auto& walk = *static_cast<Walk*>(argument);
    dwfl::Address address = 0;
    bool is_activation = false;
    if (!walk.unwinder.api_.frame_pc(frame, &address, &is_activation)) return kStop;
    // A return address may belong to the next function; the call is before it.
    walk.found.push_back(is_activation ? address : address - 1);
    return walk.found.size() < kStackFramesMax ? kGoOn : kStop;
  }

  StackFrame look_up(dwfl::Address address) {
    dwfl::Module* const module = api_.module_at(session_, address);
    if (module == nullptr) return {};
    StackFrame frame;
    if (const char* const symbol = api_.name_at(module, address)) frame.function = readable(symbol);
    if (const char* const mapped =
            api_.module_info(module, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr))
      frame.file = mapped;
    // Positions in the source of system libraries, or of ours, are of no use to the user.
    if (starts_with_any(frame.file, {"/lib", "/usr/lib"}) || contains(frame.file, "/libmuster.so"))
      return frame;
    dwfl::Line* const line = api_.line_at(module, address);
    if (line == nullptr) return frame;
    int number = 0;
    const char* const source = api_.line_info(line, nullptr, &number, nullptr, nullptr, nullptr);
    // A position in a system header is that of a function inlined into this one.
    if (source != nullptr && !starts_with_any(source, {"/usr/include/", "/usr/lib/"})) {
      frame.file = source;
      frame.line = number;
    }
    return frame;
  }

  static std::string readable(const char* symbol) {
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> demangled(
        abi::__cxa_demangle(symbol, nullptr, nullptr, &status), std::free);
    if (demangled) return short_function_name(demangled.get());
    const std::string_view name = symbol;
    return std::string(name.substr(0, name.find('@')));  // Drops the version.
  }

  const dwfl::Functions& api_;
  const dwfl::Callbacks callbacks_;
  dwfl::Session* session_ = nullptr;
  bool is_ready_ = false;
  std::map<dwfl::Address, StackFrame> names_;
};

std::vector<pid_t> task_numbers(pid_t pid) {
  std::vector<pid_t> threads{pid};
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), error)) {
    const auto thread = whole_number<pid_t>(entry.path().filename().native());
    if (thread && *thread != pid) threads.push_back(*thread);
  }
  std::sort(threads.begin() + 1, threads.end());
  return threads;
}

// 'S', 'D', ...; '?' if the thread has ended.
char task_state(pid_t pid, pid_t thread) {
  const auto entry =
      parse_process_stat(read_process_file(pid, fmt::format("task/{}/stat", thread).c_str()));
  return entry ? entry->state : '?';
}

std::string task_name(pid_t pid, pid_t thread) {
  return std::string(trim(read_process_file(pid, fmt::format("task/{}/comm", thread).c_str())));
}

class Misses {
 public:
  void add(std::string why) { ++counts_[std::move(why)]; }
  // "2 threads: in an uninterruptible sleep"; empty if there are none.
  std::string text() const {
    std::string text;
    for (const auto& [why, count] : counts_)
      text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", counted(count, "thread"), why);
    return text;
  }

 private:
  std::map<std::string, int> counts_;
};

std::string reason_of(const HeldThread& thread) {
  if (thread.error() == 0) return "did not stop for ptrace";
  if (thread.error() == EPERM)
    return "ptrace is not permitted (another debugger, seccomp, or kernel.yama.ptrace_scope)";
  return fmt::format("ptrace failed: {}", std::strerror(thread.error()));
}

std::vector<dwfl::Address> addresses_of(Unwinder& unwinder, pid_t pid, pid_t thread,
                                        Misses& misses) {
  const char state = task_state(pid, thread);
  if (is_one_of(state, {'?', 'Z', 'X'})) return {};
  // Such a thread stops only when its system call returns.
  if (state == 'D') {
    misses.add("in an uninterruptible sleep");
    return {};
  }
  const HeldThread held(thread);
  if (held.is_held()) return unwinder.addresses(thread);
  if (held.error() != ESRCH) misses.add(reason_of(held));
  return {};
}

}  // namespace

Result<std::vector<ThreadStack>> native_stacks(pid_t pid, std::string& missing) {
  const std::optional<dwfl::Functions> api = open_libdw();
  if (!api) {
    return fail(ExitCode::environment,
                "no native frames: libdw.so.1 is not installed (Debian: apt install libdw1)");
  }
  Unwinder unwinder(*api, pid);
  if (!unwinder.is_ready()) {
    return fail(ExitCode::environment,
                fmt::format("no native frames: the memory map of pid {} may not be read", pid));
  }
  const auto limit = steady_clock::now() + kUnwindPatience;
  Misses misses;
  std::vector<std::pair<pid_t, std::vector<dwfl::Address>>> found;
  for (const pid_t thread : task_numbers(pid)) {
    if (found.size() == kStackThreadsMax || steady_clock::now() > limit) {
      misses.add("left out: there are too many");
      continue;
    }
    std::vector<dwfl::Address> addresses = addresses_of(unwinder, pid, thread, misses);
    if (!addresses.empty()) found.emplace_back(thread, std::move(addresses));
  }
  if (!misses.text().empty()) missing = misses.text();
  if (found.empty()) return fail(ExitCode::environment, "no native frames: " + misses.text());
  std::vector<ThreadStack> stacks;
  for (const auto& [thread, addresses] : found) {
    ThreadStack& stack = stacks.emplace_back(ThreadStack{thread, task_name(pid, thread), {}});
    for (const dwfl::Address address : addresses)
      stack.frames.push_back(unwinder.name(address));
  }
  return stacks;
}

}  // namespace muster
