#include "agent/report/cause.h"

#include <array>
#include <csignal>
#include <optional>
#include <string_view>

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

}  // namespace muster
