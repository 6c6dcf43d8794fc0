#include "tests/transcripts/worker_group_transcript.h"

#include <fmt/format.h>

#include "rendezvous/base/signal_name.h"
#include "tests/transcripts/seconds.h"

namespace muster::group {

namespace {

std::string_view reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::failure:
      return "failure";
    case StopReason::regroup:
      return "regroup";
    case StopReason::spawn_failed:
      return "spawn_failed";
    case StopReason::leftovers:
      return "leftovers";
    case StopReason::requested:
      return "requested";
    case StopReason::ended:
      return "ended";
  }
  return "";
}

std::string_view end_name(std::optional<JobEnd> end) {
  if (!end) return "ended";
  switch (*end) {
    case JobEnd::success:
      return "success";
    case JobEnd::failed:
      return "failed";
    case JobEnd::stopped:
      return "stopped";
    case JobEnd::spawn_failed:
      return "spawn_failed";
    case JobEnd::round_failed:
      return "round_failed";
    case JobEnd::unkillable:
      return "unkillable";
  }
  return "";
}

std::string first_failure_text(const FirstFailure& c) {
  const std::string what = c.status ? describe(*c.status) : c.why;
  return fmt::format("attempt {} rank {} pid {} {}", c.attempt, c.local_rank, c.pid, what);
}

std::string of_worker(std::string_view name, int attempt, int local_rank) {
  return fmt::format("{}{{attempt {}, rank {}}}", name, attempt, local_rank);
}

std::string of_attempt(std::string_view name, int attempt) {
  return fmt::format("{}{{attempt {}}}", name, attempt);
}

std::string with_signal(std::string_view name, int signal) {
  return fmt::format("{}{{{}}}", name, signal_name(signal));
}

std::string text(const Begin&) {
  return "Begin";
}
std::string text(const RoundReady& e) {
  return of_attempt("RoundReady", e.attempt);
}
std::string text(const RoundFailed& e) {
  return fmt::format("RoundFailed{{attempt {}, {}}}", e.attempt, e.error.message);
}
std::string text(const Spawned& e) {
  return fmt::format("Spawned{{attempt {}, rank {}, pid {}}}", e.attempt, e.local_rank, e.pid);
}
std::string text(const SpawnFailed& e) {
  return fmt::format("SpawnFailed{{attempt {}, rank {}, {}}}", e.attempt, e.local_rank,
                     e.error.message);
}
std::string text(const Exited& e) {
  return fmt::format("Exited{{attempt {}, rank {}, {}}}", e.attempt, e.local_rank,
                     describe(e.status));
}
std::string text(const FailWorker& e) {
  return fmt::format("FailWorker{{attempt {}, rank {}, {}}}", e.attempt, e.local_rank, e.why);
}
std::string text(const GroupEmpty& e) {
  return of_attempt("GroupEmpty", e.attempt);
}
std::string text(const Regroup& e) {
  return of_attempt("Regroup", e.attempt);
}
std::string text(const JobEnded&) {
  return "JobEnded";
}
std::string text(const StopRequested& e) {
  return with_signal("StopRequested", e.signal);
}
std::string text(const StopRepeated&) {
  return "StopRepeated";
}
std::string text(const KillRequested&) {
  return "KillRequested";
}
std::string text(const KillRefused& e) {
  return of_attempt("KillRefused", e.attempt);
}
std::string text(const Suspend&) {
  return "Suspend";
}
std::string text(const Resume&) {
  return "Resume";
}
std::string text(const Forward& e) {
  return with_signal("Forward", e.signal);
}
std::string text(const Tick&) {
  return "Tick";
}

std::string text(const RequestRound& e) {
  return fmt::format("RequestRound{{attempt {}, restart {}}}", e.attempt, e.restart_count);
}
std::string text(const Spawn& e) {
  return of_worker("Spawn", e.attempt, e.local_rank);
}
std::string text(const WorkerFailed& e) {
  return fmt::format("WorkerFailed{{{}, {}, {} left}}", first_failure_text(e.first),
                     e.will_restart ? "restart" : "no restart", e.restarts_left);
}
std::string text(const Stop& e) {
  return fmt::format("Stop{{attempt {}, {}}}", e.attempt, signal_name(e.signal));
}
std::string text(const StopRest& e) {
  return of_attempt("StopRest", e.attempt);
}
std::string text(const Kill& e) {
  return of_attempt("Kill", e.attempt);
}
std::string text(const ReportStopping& e) {
  return fmt::format("ReportStopping{{attempt {}, {}, {}, {} in {}, live [{}]}}", e.attempt,
                     reason_name(e.reason), e.signal == 0 ? "KILL only" : signal_name(e.signal),
                     e.killing ? "give up" : "KILL", seconds_text(e.left), fmt::join(e.live, ","));
}
std::string text(const WatchLeftovers& e) {
  return of_attempt("WatchLeftovers", e.attempt);
}
std::string text(const ReportLeftovers& e) {
  return fmt::format("ReportLeftovers{{attempt {}, TERM in {}}}", e.attempt, seconds_text(e.left));
}
std::string text(const SuspendWorkers& e) {
  return of_attempt("SuspendWorkers", e.attempt);
}
std::string text(const ResumeWorkers& e) {
  return of_attempt("ResumeWorkers", e.attempt);
}
std::string text(const ForwardSignal& e) {
  return fmt::format("ForwardSignal{{attempt {}, {}}}", e.attempt, signal_name(e.signal));
}
std::string text(const Succeeded& e) {
  return of_attempt("Succeeded", e.attempt);
}
std::string text(const BackOff& e) {
  return fmt::format("BackOff{{attempt {}, {} quick deaths, {}}}", e.attempt, e.quick_deaths,
                     seconds_text(e.delay));
}
std::string text(const Note& e) {
  return fmt::format("Note{{{}}}", e.text);
}
std::string text(const Finish& e) {
  return fmt::format("Finish{{{}}}", to_text(e.outcome));
}

}  // namespace

std::string to_text(const Event& event) {
  return std::visit([](const auto& e) { return text(e); }, event);
}

std::string to_text(const Effect& effect) {
  return std::visit([](const auto& e) { return text(e); }, effect);
}

std::string to_text(const JobOutcome& outcome) {
  std::string line = fmt::format("{}, {} attempts, {} restarts", end_name(outcome.end),
                                 outcome.attempts, outcome.restarts);
  if (outcome.signal != 0) line += ", " + signal_name(outcome.signal);
  if (outcome.stopped_for)
    line += fmt::format(", stopped for {}", reason_name(*outcome.stopped_for));
  if (outcome.error) line += ", " + outcome.error->message;
  return line;
}

}  // namespace muster::group
