#include "agent/control/musterctl_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "agent/report/text.h"

namespace muster {
namespace {

constexpr std::size_t kUnfinishedMax = 64 * 1024;
constexpr std::size_t kNamedJobsMax = 5;

std::string without_controls(std::string_view text) {
  std::string plain(text);
  std::ranges::replace_if(plain, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return plain;
}

std::string named_jobs(std::span<const JobEntry> jobs) {
  std::string names;
  for (const JobEntry& job : jobs.first(std::min(jobs.size(), kNamedJobsMax))) {
    names +=
        fmt::format("{}{} (pid {})", names.empty() ? "" : ", ", without_controls(job.id), job.pid);
  }
  return names + (jobs.size() > kNamedJobsMax ? ", ..." : "");
}

std::string ranks_of_node(const control::NodeStatus& node) {
  if (node.workers < 1) return "-";
  if (node.workers == 1) return std::to_string(node.first_rank);
  return fmt::format("{}-{}", node.first_rank, int64_t{node.first_rank} + node.workers - 1);
}

std::string budget_text(const control::JobStatus& status) {
  std::string text = fmt::format("{} of {} used", status.restarts_used, status.max_restarts);
  if (status.max_membership_changes) {
    text += fmt::format("; membership changes: {} of {}", status.membership_changes,
                        *status.max_membership_changes);
  } else if (status.membership_changes > 0) {
    text += fmt::format("; membership changes: {}", status.membership_changes);
  }
  return text;
}

std::string node_table(const std::vector<control::NodeStatus>& nodes) {
  std::vector<std::vector<std::string>> rows{{"NODE", "HOST", "RANKS", "STATE"}};
  for (const control::NodeStatus& node : nodes) {
    rows.push_back({node.node_rank < 0 ? "-" : std::to_string(node.node_rank),
                    without_controls(node.host), ranks_of_node(node),
                    without_controls(node.state)});
  }
  return table_text(rows);
}

}  // namespace

Result<JobEntry> pick_job(std::span<const JobEntry> jobs, std::string_view name) {
  if (jobs.empty()) {
    return fail(ExitCode::not_found, "no job of yours is running on this machine");
  }
  std::vector<JobEntry> fitting;
  std::ranges::copy_if(jobs, std::back_inserter(fitting), [&](const JobEntry& job) {
    return name.empty() || job.id == name || std::to_string(job.pid) == name;
  });
  if (fitting.size() == 1) return fitting.front();
  if (fitting.empty()) {
    return fail(ExitCode::not_found,
                fmt::format("no running job of yours on this machine matches {}; running: {}",
                            without_controls(name), named_jobs(jobs)));
  }
  return fail(ExitCode::usage,
              fmt::format("several jobs are running: {}; name one by its {}", named_jobs(fitting),
                          name.empty() ? "id or pid" : "pid"));
}

std::string list_text(std::span<const JobEntry> jobs, double now) {
  if (jobs.empty()) return "no job of yours is running on this machine\n";
  std::vector<std::vector<std::string>> rows{{"PID", "JOB", "UP", "PROGRAM"}};
  for (const JobEntry& job : jobs) {
    rows.push_back({std::to_string(job.pid), without_controls(job.id),
                    elapsed_text(now - job.started), without_controls(job.program)});
  }
  return table_text(rows);
}

std::string status_text(const control::JobStatus& status) {
  std::string text =
      fmt::format("job       {} (pid {})\n", without_controls(status.job_id), status.pid);
  text += fmt::format("program   {}\n", without_controls(status.program));
  text += fmt::format("state     {}\n", without_controls(status.phase));
  text += fmt::format("workers   {} in round {}\n", status.world_size, status.epoch);
  text += fmt::format("restarts  {}\n", budget_text(status));
  text += fmt::format("up        {}\n", elapsed_text(status.uptime_s));
  text += fmt::format("logs      {}\n",
                      status.log_dir.empty() ? "no files" : without_controls(status.log_dir));
  return text + "\n" + node_table(status.nodes);
}

std::string elapsed_text(double seconds) {
  constexpr double kLongest = 1e12;
  const auto whole =
      static_cast<int64_t>(std::isfinite(seconds) ? std::clamp(seconds, 0.0, kLongest) : 0.0);
  const int64_t minutes = whole / 60;
  const int64_t hours = minutes / 60;
  if (minutes == 0) return fmt::format("{} s", whole);
  if (hours == 0) return fmt::format("{} min {:02} s", minutes, whole % 60);
  if (hours < 24) return fmt::format("{} h {:02} min", hours, minutes % 60);
  return fmt::format("{} d {:02} h", hours / 24, hours % 24);
}

void LogPrinter::add(const std::vector<control::LogText>& logs) {
  for (const control::LogText& log : logs)
    add_text(log.rank, log.text);
}

void LogPrinter::add_text(int rank, std::string_view text) {
  if (!prefixed_) return print_(text);
  std::string& line = unfinished_[rank];
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    const std::size_t taken =
        std::min(newline == std::string_view::npos ? text.size() : newline, kUnfinishedMax);
    line += text.substr(0, taken);
    if (newline == std::string_view::npos && line.size() < kUnfinishedMax) return;
    print_(fmt::format("[{}] {}\n", rank, line));
    line.clear();
    text.remove_prefix(std::min(text.size(), taken == newline ? taken + 1 : taken));
  }
}

void LogPrinter::finish() {
  for (auto& [rank, line] : unfinished_) {
    if (!line.empty()) print_(fmt::format("[{}] {}\n", rank, line));
    line.clear();
  }
}

}  // namespace muster
