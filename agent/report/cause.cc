#include "agent/report/cause.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "agent/report/remedies.h"
#include "agent/report/text.h"
#include "rendezvous/base/enum_name.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

struct SignalNote {
  int signal;
  std::string_view note;
};

constexpr std::array kSignalNotes = {
    SignalNote{SIGILL, "an instruction that this CPU does not have, or a trap in the program"},
    SignalNote{SIGALRM, "a timer of its own, as alarm() sets it, which it does not handle"},
    SignalNote{SIGPIPE, "no process was left to read the pipe or socket that it wrote to"},
    SignalNote{SIGXCPU, "the CPU time limit, ulimit -t"},
    SignalNote{SIGXFSZ, "the file size limit, ulimit -f"},
    SignalNote{SIGSYS, "a system call that a seccomp filter forbids"},
};

std::string first_line(std::string_view text) {
  return clean_line(text.substr(0, text.find('\n')));
}

// Returns the text to search for known messages: the exception if there is one, else the last few
// lines, since an error further up may have been handled.
std::string searched_text(const WorkerFailure& failure, const std::string& exception) {
  if (!exception.empty()) return exception;
  return fmt::format("{}", fmt::join(last_lines(failure.stderr_tail, 10), "\n"));
}

std::string core_text(const WorkerFailure& failure, const HostEvidence& evidence) {
  if (!evidence.core_path.empty()) return ", core at " + evidence.core_path;
  if (failure.status.core_dumped) {
    return evidence.core_handler.empty() ? ", core dumped"
                                         : ", core taken by a handler: " + evidence.core_handler;
  }
  return evidence.core_limit_bytes == 0 ? " (no core: ulimit -c is 0)" : "";
}

bool dumps_core(int signal) {
  return is_one_of(signal, {SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGXCPU,
                            SIGXFSZ, SIGSYS});
}

Cause classify_bus_error(const WorkerFailure& failure, const HostEvidence& evidence) {
  const int64_t total = evidence.shm_total_bytes;
  const bool known = evidence.shm_free_bytes >= 0 && total > 0;
  if (known && evidence.shm_free_bytes <= total / 64) {
    return {FailureClass::shm,
            fmt::format("killed by SIGBUS: bus error and /dev/shm is full ({} of {})",
                        bytes_text(total - evidence.shm_free_bytes), bytes_text(total)),
            "", std::string(kShmRemedy)};
  }
  // The dead process's share is free again, so a small /dev/shm is suspect even if it has room.
  if (known && total <= int64_t{64} << 20) {
    return {FailureClass::shm,
            fmt::format("killed by SIGBUS: bus error, probably because /dev/shm holds only {}",
                        bytes_text(total)),
            "", std::string(kShmRemedy)};
  }
  return {FailureClass::signal, "killed by SIGBUS (bus error)" + core_text(failure, evidence), "",
          ""};
}

Cause classify_signal(const WorkerFailure& failure, const HostEvidence& evidence) {
  const int signal = failure.status.value;
  if (signal == SIGKILL) return classify_kill(failure, evidence);
  if (signal == SIGBUS) return classify_bus_error(failure, evidence);
  std::string sentence = "killed by " + signal_name(signal);
  for (const SignalNote& known : kSignalNotes) {
    if (known.signal == signal) sentence += fmt::format(" ({})", known.note);
  }
  if (!evidence.expired_timer.empty()) {
    return {FailureClass::timer,
            sentence + ": its timer \"" + evidence.expired_timer + "\" expired", "", ""};
  }
  if (evidence.stack_overflow) {
    sentence += ": its stack overflowed";
    if (evidence.limits.stack_bytes != WorkerLimits::kNone)
      sentence += fmt::format(" (ulimit -s is {})",
                              bytes_text(static_cast<int64_t>(evidence.limits.stack_bytes)));
  }
  if (dumps_core(signal)) {
    sentence += core_text(failure, evidence);
  } else if (is_one_of(signal, {SIGTERM, SIGINT, SIGHUP})) {
    sentence += " from outside (not by muster)";
  }
  if (evidence.stack_overflow)
    return {FailureClass::signal, sentence, "", std::string(kStackRemedy)};
  if (signal == SIGXCPU) return {FailureClass::limit, sentence, "", std::string(kCpuTimeRemedy)};
  return {FailureClass::signal, sentence, "", ""};
}

// A shell, and many wrappers, report the death of their command by signal n as 128 + n.
int signal_behind_code(int code) {
  const bool usual = is_one_of(code - 128, {SIGINT, SIGQUIT, SIGILL, SIGABRT, SIGBUS, SIGFPE,
                                            SIGKILL, SIGSEGV, SIGPIPE, SIGTERM});
  return usual ? code - 128 : 0;
}

Cause classify_exit(const WorkerFailure& failure, const HostEvidence& evidence) {
  const int code = failure.status.value;
  Cause cause;
  cause.sentence = fmt::format("exited with {}", code);
  const int signal = signal_behind_code(code);
  if (signal != 0) {
    cause.sentence += fmt::format(", probably because {} killed its command", signal_name(signal));
  }
  if (evidence.oom_kills > 0 && signal == SIGKILL) cause.kind = FailureClass::oom;
  return cause;
}

// An interpreter with large libraries takes this long to end.
constexpr Duration kEndsWithin = std::chrono::seconds(1);

// True if the sentence is to say that muster stopped it after its error.
bool is_said_to_have_hung(const WorkerFailure& failure, const OwnError& error) {
  return failure.declared.empty() && failure.stopped_by_muster && error.is_reason;
}

Cause classify_bare(const WorkerFailure& failure, const HostEvidence& evidence,
                    const OwnError& error) {
  if (!failure.declared.empty()) {
    return {FailureClass::stuck, first_line(failure.declared), "", ""};
  }
  if (is_said_to_have_hung(failure, error)) {
    return {FailureClass::user,
            fmt::format("raised {}{}{}; muster stopped it {} later", error.text,
                        error.site.empty() ? "" : " (" + error.site + ")",
                        error.before_stop < kEndsWithin ? "" : " and did not end",
                        duration_text(error.before_stop)),
            "", ""};
  }
  if (failure.stopped_by_muster) {
    return {FailureClass::signal, "stopped by muster (" + describe(failure.status) + ")", "", ""};
  }
  return failure.status.kind == ExitStatus::Kind::signaled ? classify_signal(failure, evidence)
                                                           : classify_exit(failure, evidence);
}

bool broke_pipe(const WorkerFailure& failure, const OwnError& error) {
  const ExitStatus& status = failure.status;
  return status.killed_by(SIGPIPE) || status == ExitStatus::exited(128 + SIGPIPE) ||
         contains(searched_text(failure, error.text), "Broken pipe");
}

// True if messages on stderr may say more than the exit status does.
bool is_open(const Cause& cause, const ExitStatus& status) {
  if (!cause.remedy.empty()) return false;
  return cause.kind == FailureClass::user ||
         (cause.kind == FailureClass::signal &&
          (status.killed_by(SIGABRT) || status.killed_by(SIGBUS)));
}

// True if nothing explains the end: these two remedies only say how to learn more.
bool is_unexplained(const Cause& cause) {
  if (!cause.remedy.empty())
    return is_one_of<std::string_view>(cause.remedy, {kGpuKernelRemedy, kNcclRemedy});
  return cause.kind != FailureClass::user || cause.exception.empty() ||
         contains(cause.exception, "CUDA");
}

bool speaks_of_gpu(const Cause& cause) {
  return cause.kind == FailureClass::gpu || contains(cause.exception, "CUDA") ||
         contains(cause.exception, "NCCL");
}

// An Xid that does not name the worker may come from another job's GPU.
void add_xid(Cause& cause, const WorkerFailure& failure, const Xid& xid) {
  const bool is_own = xid.pid == failure.pid;
  if (!is_own && !speaks_of_gpu(cause)) return;
  cause.sentence += fmt::format("; the GPU driver logged Xid {} ({}){}{}{}", xid.number, xid.gpu,
                                is_own ? "" : " meanwhile", xid.text.empty() ? "" : ": ", xid.text);
  if (xid_of_hardware(xid.number) && (is_own || is_unexplained(cause))) {
    cause.kind = FailureClass::gpu;
    cause.remedy = kGpuHardwareRemedy;
  } else if (xid_of_program(xid.number) && is_own && is_open(cause, failure.status)) {
    cause.kind = FailureClass::gpu;
    cause.remedy = kGpuKernelRemedy;
  }
}

std::string memory_limit_text(const HostEvidence& evidence, long peak_kib = 0) {
  std::vector<std::string> facts;
  if (peak_kib > 0) facts.push_back("its peak was " + bytes_text(int64_t{peak_kib} * 1024));
  if (evidence.memory_limit_bytes > 0)
    facts.push_back("the limit of the memory cgroup is " + bytes_text(evidence.memory_limit_bytes));
  return facts.empty() ? "" : fmt::format(" ({})", fmt::join(facts, ", "));
}

// The kernel compares a count of ticks, which on a busy machine sees a process more or less often
// than it runs: within a tenth, and half a second.
bool reached_cpu_limit(const WorkerFailure& failure, const WorkerLimits& limits) {
  const auto limit = static_cast<double>(limits.cpu_s);
  return failure.cpu_s > 0.9 * limit - 0.5 && failure.cpu_s < limit + 2;
}

// True if the text has that number, and not only within another.
bool names_pid(std::string_view text, pid_t pid) {
  const std::string digits = std::to_string(pid);
  for (size_t at = text.find(digits); at != text.npos; at = text.find(digits, at + 1)) {
    const bool begins = at == 0 || !is_digit(text[at - 1]);
    const size_t end = at + digits.size();
    if (begins && (end == text.size() || !is_digit(text[end]))) return true;
  }
  return false;
}

}  // namespace

Cause classify(const WorkerFailure& failure, const HostEvidence& evidence, const OwnError& error) {
  Cause cause = classify_bare(failure, evidence, error);
  cause.exception = error.text;
  if (!error.text.empty() && !is_said_to_have_hung(failure, error)) {
    cause.sentence +=
        error.is_reason ? ": " + error.text : " (last error on its stderr: " + error.text + ")";
  }
  if (evidence.lost_console && broke_pipe(failure, error)) cause.remedy = kConsoleRemedy;
  const std::string words = searched_text(failure, error.text);
  const std::string helper = is_open(cause, failure.status) ? killed_helper(evidence, words) : "";
  if (!failure.stopped_by_muster && failed_to_fork(failure, evidence, error.text)) {
    cause.kind = FailureClass::limit;
    cause.remedy = kProcessLimitRemedy;
  } else if (!helper.empty()) {
    cause.kind = FailureClass::oom;
    cause.sentence += "; " + helper;
    cause.remedy = kMemoryRemedy;
  } else if (is_open(cause, failure.status)) {
    if (std::optional<Remedy> known = known_remedy(words)) {
      cause.kind = known->kind;
      cause.remedy = std::move(known->text);
    }
  }
  if (cause.remedy == kProcessLimitRemedy && !evidence.process_limit.empty())
    cause.sentence += "; " + evidence.process_limit;
  if (evidence.xid && !failure.stopped_by_muster) add_xid(cause, failure, *evidence.xid);
  const bool exited = failure.status.kind == ExitStatus::Kind::exited;
  if (exited && cause.remedy.empty() && evidence.oom_kills > 0)
    cause.remedy = memory_note(cause, evidence);
  if (evidence.full_log_disk.empty()) return cause;
  if (cause.kind == FailureClass::disk) {
    cause.remedy = "the disk of the log folder " + evidence.full_log_disk + " is full";
  } else if (is_open(cause, failure.status) && cause.exception.empty() && cause.remedy.empty()) {
    // A program whose output goes to that disk can leave no message.
    cause.kind = FailureClass::disk;
    cause.remedy = "the disk of the log folder " + evidence.full_log_disk +
                   " is full: its last output is lost, and that may be why it failed";
  }
  return cause;
}

const char* failure_class_name(FailureClass kind) {
  return name_in<FailureClass::limit>(
      {"user", "oom", "gpu", "network", "signal", "shm", "disk", "stuck", "timer", "limit"}, kind);
}

bool explained_by_stop(const ExitStatus& status, int stop_signal, bool killed) {
  const bool signaled = status.kind == ExitStatus::Kind::signaled;
  const int signal = signaled ? status.value : status.value - 128;
  return signal == stop_signal || (killed && signal == SIGKILL);
}

Cause classify_kill(const WorkerFailure& failure, const HostEvidence& evidence) {
  if (!evidence.expired_timer.empty()) {
    return {FailureClass::timer,
            fmt::format("killed by SIGKILL: its timer \"{}\" expired", evidence.expired_timer), "",
            "the work under that timer took too long; the program's last lines show where it was"};
  }
  const std::string facts = memory_limit_text(evidence, failure.max_rss_kib);
  const bool told = evidence.oom_victim.has_value();
  if (told ? *evidence.oom_victim : evidence.oom_kills > 0 && !evidence.more_kills) {
    return {FailureClass::oom, "killed by the kernel's out-of-memory killer" + facts, "",
            std::string(kMemoryRemedy)};
  }
  if (!told && (evidence.oom_kills > 0 || evidence.machine_oom_kills > 0)) {
    return {FailureClass::oom,
            fmt::format("killed by SIGKILL, probably by the kernel's out-of-memory killer, which "
                        "was active {} at the time{}",
                        evidence.oom_kills > 0 ? "in this job" : "on this machine", facts),
            "", std::string(kMemoryRemedy)};
  }
  if (reached_cpu_limit(failure, evidence.limits)) {
    return {FailureClass::limit,
            fmt::format("killed by SIGKILL at its CPU time limit (ulimit -t is {} s)",
                        evidence.limits.cpu_s),
            "", std::string(kCpuTimeRemedy)};
  }
  const char* else_not = evidence.oom_kills > 0 ? ", nor by the out-of-memory killer" : "";
  return {FailureClass::signal,
          fmt::format("killed by SIGKILL from outside (not by muster{})", else_not), "", ""};
}

// Phrases of torch's DataLoader, concurrent.futures, joblib, Hugging Face's datasets,
// torch.multiprocessing, subprocess and shells; process launchers return -9 or 137 for SIGKILL.
bool tells_of_killed_helper(std::string_view words) {
  for (const std::string_view phrase :
       {"Killed", "SIGKILL", "exited unexpectedly", "terminated abruptly", "abruptly died",
        "unexpectedly terminated", "terminated unexpectedly", "exit status 137", "exit code 137"}) {
    if (contains(words, phrase)) return true;
  }
  for (size_t at = words.find("-9"); at != words.npos; at = words.find("-9", at + 1)) {
    const bool begins = at == 0 || contains(" (:=", words.substr(at - 1, 1));
    if (begins && (at + 2 == words.size() || !is_digit(words[at + 2]))) return true;
  }
  return false;
}

std::string killed_helper(const HostEvidence& evidence, std::string_view words) {
  if (!tells_of_killed_helper(words)) return {};
  const std::vector<OomVictim>& victims = evidence.oom_victims;
  auto meant = std::ranges::find_if(
      victims, [words](const OomVictim& victim) { return names_pid(words, victim.pid); });
  if (meant == victims.end()) {
    // The victims may be other users' processes, and the words may mean another process.
    const bool is_another = evidence.oom_victim && contains(words, "(pid");
    if (is_another || evidence.oom_kills == 0) return {};
    const bool one_is_own = std::ranges::count(victims, true, &OomVictim::is_own) == 1;
    if (one_is_own) meant = std::ranges::find(victims, true, &OomVictim::is_own);
    if (victims.size() == 1) meant = victims.begin();
  }
  return "the kernel's out-of-memory killer had killed " +
         (meant == victims.end() ? "one of its processes"
                                 : fmt::format("its process {} ({})", meant->pid, meant->name)) +
         memory_limit_text(evidence);
}

std::string memory_note(const Cause& cause, const HostEvidence& evidence) {
  const int64_t kills = evidence.oom_kills;
  return fmt::format("the kernel's out-of-memory killer killed {} of this job{}: {}",
                     kills == 1 ? "a process" : fmt::format("{} processes", kills),
                     cause.exception.empty() ? "" : "; if that is why the rank failed",
                     kMemoryRemedy);
}

// OpenBLAS raises SIGINT if it gets no thread. A refused fork and a read that would block raise the
// same BlockingIOError; the frames of `python -c` do not show which.
bool failed_to_fork(const WorkerFailure& failure, const HostEvidence& evidence,
                    std::string_view exception) {
  const std::string_view tail = failure.stderr_tail;
  if (exception.starts_with("KeyboardInterrupt"))
    return contains(tail, "blas_thread_init: pthread_create failed");
  if (!contains(exception, "BlockingIOError: [Errno 11]")) return false;
  return contains(tail, "fork") ||
         (contains(tail, "File \"<string>\"") && !evidence.process_limit.empty());
}

}  // namespace muster
