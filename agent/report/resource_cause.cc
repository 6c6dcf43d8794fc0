#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "agent/report/cause.h"
#include "agent/report/remedies.h"
#include "agent/report/text.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

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
