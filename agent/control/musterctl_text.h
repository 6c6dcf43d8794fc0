// The text side of musterctl: finds the job that a name selects, and formats jobs, a job's status
// and its logs for people. Text that came from a job is shown without its control characters,
// except logs. Pure; musterctl.cc does the communication.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/control/control_protocol.h"
#include "rendezvous/base/error.h"

namespace muster {

// `name` is a job id or a pid; empty: the only job there is. Fails with ExitCode::not_found if none
// matches and with ExitCode::usage if several do.
Result<JobEntry> pick_job(std::span<const JobEntry> jobs, std::string_view name);

// One line for each job under a heading. `now` is in seconds since 1970.
std::string list_text(std::span<const JobEntry> jobs, double now);

std::string status_text(const control::JobStatus& status);

// "12 s", "3 min 04 s", "1 h 02 min", "3 d 04 h".
std::string elapsed_text(double seconds);

// Prints logs: those of several ranks in whole lines with the rank as prefix, one rank's unchanged.
class LogPrinter {
 public:
  using Print = std::function<void(std::string_view)>;

  LogPrinter(bool prefixed, Print print) : prefixed_(prefixed), print_(std::move(print)) {}

  void add(const std::vector<control::LogText>& logs);
  void finish();

 private:
  void add_text(int rank, std::string_view text);

  bool prefixed_;
  Print print_;
  std::map<int, std::string> unfinished_;
};

}  // namespace muster
