#include "agent/report/result_json.h"

#include <csignal>

#include <fmt/format.h>

#include "agent/report/cause.h"
#include "agent/report/text.h"
#include "agent/report/wire_json.h"
#include "rendezvous/base/enum_name.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

using nlohmann::ordered_json;

constexpr int kResultVersion = 1;
constexpr size_t kStderrLinesKept = 30;

ordered_json or_null(const std::string& text) {
  return text.empty() ? ordered_json() : ordered_json(text);
}

// A terminal sends INT, QUIT and HUP; a scheduler sends TERM and the other signals.
const char* class_of_stop(int signal) {
  return is_one_of(signal, {SIGINT, SIGQUIT, SIGHUP}) ? "interrupted" : "preempted";
}

const char* class_of(const JobReport& report) {
  switch (report.end) {
    case JobEnd::success:
      return "success";
    case JobEnd::failed:
      return failure_class_name(report.cause.kind);
    case JobEnd::stopped:
      return class_of_stop(report.stop_signal);
    case JobEnd::spawn_failed:
    case JobEnd::round_failed:
      return "setup";
    case JobEnd::unkillable:
      return "stuck";
  }
  CHECK(false);
}

std::string summary_of(const JobReport& report) {
  switch (report.end) {
    case JobEnd::success:
      return "all workers succeeded";
    case JobEnd::failed:
      if (!report.culprit) return "a worker failed";
      return fmt::format("rank {} {}", report.the_culprit().rank, report.cause.sentence);
    case JobEnd::stopped:
      return "stopped by " + (report.stopped_by.empty() ? signal_name(report.stop_signal)
                                                        : clean_line(report.stopped_by));
    case JobEnd::spawn_failed:
    case JobEnd::round_failed:
      return report.error.message;
    case JobEnd::unkillable:
      return std::to_string(report.stuck.size()) + " processes outlived SIGKILL";
  }
  CHECK(false);
}

void put_status(ordered_json& json, const ExitStatus& status) {
  const bool exited = status.kind == ExitStatus::Kind::exited;
  json["exit_code"] = exited ? ordered_json(status.value) : ordered_json();
  json["signal"] = exited ? ordered_json() : ordered_json(signal_name(status.value));
  json["core_dumped"] = status.core_dumped;
}

ordered_json worker_json(const JobReport& report, const WorkerFailure& failure) {
  ordered_json json;
  json["rank"] = failure.rank;
  json["local_rank"] = failure.local_rank;
  json["pid"] = failure.pid > 0 ? ordered_json(failure.pid) : ordered_json();
  json["attempt"] = failure.attempt;
  json["host"] = failure.host;
  json["node_rank"] = failure.node_rank >= 0 ? failure.node_rank : report.node_rank;
  json["device"] = or_null(failure.device);
  json["call"] = or_null(failure.call);
  put_status(json, failure.status);
  json["part"] = part_name(failure.part);
  json["stopped_by_muster"] = failure.stopped_by_muster;
  json["time"] = failure.summary_only ? ordered_json() : ordered_json(wall_time_iso(failure.time));
  json["seconds"] = to_seconds(failure.ran);
  json["max_rss_kib"] = failure.max_rss_kib;
  json["cpu_seconds"] = failure.cpu_s;
  json["stdout_log"] = or_null(failure.stdout_log_path);
  json["stderr_log"] = or_null(failure.stderr_log_path);
  return json;
}

ordered_json culprit_json(const JobReport& report, const WorkerFailure& failure) {
  const Cause& cause = report.cause;
  ordered_json json = worker_json(report, failure);
  json["role"] = failure.role;
  json["program"] = failure.program;
  json["binary"] = failure.binary.empty() ? failure.program : failure.binary;
  json["exception"] = or_null(cause.exception);
  json["stderr"] = last_lines(failure.stderr_tail, kStderrLinesKept);
  json["error_file"] = or_null(failure.error_file_content ? failure.error_file_path : "");
  json["error_file_content"] =
      failure.error_file_content ? ordered_json(*failure.error_file_content) : ordered_json();
  return json;
}

void put_workers(ordered_json& json, const JobReport& report) {
  json["culprit"] = ordered_json();
  json["others"] = ordered_json::array();
  for (size_t i = 0; i < report.failures.size(); ++i) {
    if (report.culprit == i) {
      json["culprit"] = culprit_json(report, report.failures[i]);
    } else {
      json["others"].push_back(worker_json(report, report.failures[i]));
    }
  }
  json["others_untold"] = report.others_untold;
  json["stopped_elsewhere"] = report.stopped_elsewhere;
  json["reason"] = report.culprit ? ordered_json(reason_name(report.reason)) : ordered_json();
}

ordered_json attempts_json(const JobReport& report) {
  ordered_json attempts = ordered_json::array();
  for (const AttemptRecord& record : report.attempts) {
    ordered_json json;
    json["attempt"] = record.attempt;
    json["started"] = wall_time_iso(record.started);
    json["seconds"] = to_seconds(record.lasted);
    json["why_ended"] = record.why_ended;
    attempts.push_back(std::move(json));
  }
  return attempts;
}

ordered_json failed_json(const JobReport& report) {
  ordered_json ranks = ordered_json::array();
  for (const WorkerFailure& failure : report.failed_in_stop) {
    ordered_json& json = ranks.emplace_back();
    json["rank"] = failure.rank;
    put_status(json, failure.status);
    json["text"] = clean_line(failure.sentence);
  }
  return ranks;
}

ordered_json left_json(const JobReport& report) {
  ordered_json ranks = ordered_json::array();
  for (const LeftRank& left : report.left) {
    ranks.push_back({{"rank", left.rank},
                     {"seconds", to_seconds(left.had)},
                     {"where", or_null(left.where)},
                     {"missing", or_null(left.missing)},
                     {"call", or_null(left.call)},
                     {"group", or_null(left.group)}});
  }
  return ranks;
}

ordered_json stop_json(const JobReport& report) {
  if (report.stop_signal == 0) return {};
  ordered_json json;
  json["signal"] = signal_name(report.stop_signal);
  json["by"] = or_null(report.stopped_by);
  json["seconds"] = to_seconds(report.stop_took);
  json["kill_requested"] = report.kill_requested;
  json["killed_ranks"] = report.killed_ranks;
  json["failed"] = failed_json(report);
  return json;
}

ordered_json stuck_json(const JobReport& report) {
  ordered_json processes = ordered_json::array();
  for (const StuckProcess& process : report.stuck) {
    ordered_json json;
    json["pid"] = process.pid;
    json["rank"] = process.rank < 0 ? ordered_json() : ordered_json(process.rank);
    json["name"] = process.name;
    json["state"] = std::string(1, process.state);
    json["wchan"] = or_null(process.wchan);
    json["uid"] = process.foreign_user ? ordered_json(*process.foreign_user) : ordered_json();
    processes.push_back(std::move(json));
  }
  return processes;
}

// Puts the verdict on a hang under "hang" or "mismatch"; the other key is null.
void put_hang(ordered_json& json, const std::optional<HangReport>& hang) {
  json["hang"] = ordered_json();
  json["mismatch"] = ordered_json();
  if (!hang) return;
  ordered_json& found = json[hang->is_mismatch ? "mismatch" : "hang"];
  found = hang_json(*hang);
  found["attempt"] = hang->attempt;
}

ordered_json world_json(const JobReport& report) {
  ordered_json json;
  json["size"] = report.world_size;
  json["local_size"] = report.local_world_size;
  json["nnodes"] = report.nnodes;
  json["node_rank"] = report.node_rank;
  return json;
}

}  // namespace

ordered_json hang_json(const HangReport& hang) {
  ordered_json json;
  json["ranks"] = hang.ranks;
  json["class"] = hang.what;
  json["by"] = hang.by;
  json["group"] = hang.group;
  json["operation"] = hang.operation;
  json["ordinal"] = ordered_json();
  if (hang.ordinal > 0) json["ordinal"] = hang.ordinal;
  json["waiting"] = hang.waiting;
  json["seconds"] = hang.seconds;
  json["confidence"] = hang.confidence;
  json["text"] = hang.text;
  return json;
}

const char* outcome_name(JobEnd end) {
  return name_in<JobEnd::unkillable>(
      {"success", "failed", "stopped", "spawn_failed", "round_failed", "unkillable"}, end);
}

std::string result_json(const JobReport& report, const ExitCodes& codes) {
  ordered_json json;
  json["version"] = kResultVersion;
  json["outcome"] = outcome_name(report.end);
  json["exit_code"] = exit_code_of(report, codes);
  json["class"] = class_of(report);
  json["summary"] = summary_of(report);
  json["remedy"] = or_null(report.cause.remedy);
  json["run_id"] = report.run_id;
  json["program"] = report.program;
  json["host"] = report.host;
  json["role"] = report.role;
  json["log_dir"] = or_null(report.log_dir);
  json["world"] = world_json(report);
  json["started"] = wall_time_iso(report.started);
  json["ended"] = wall_time_iso(report.ended);
  json["seconds"] = to_seconds(report.ended - report.started);
  json["restarts"]["used"] = report.restarts_used;
  json["restarts"]["max"] = report.max_restarts;
  json["membership_changes"] = report.membership_changes;
  json["attempts"] = attempts_json(report);
  put_workers(json, report);
  put_hang(json, report.hang);
  json["stop"] = stop_json(report);
  json["left"] = left_json(report);
  json["stuck"] = stuck_json(report);
  return wire::dump(json, 2) + "\n";
}

}  // namespace muster
