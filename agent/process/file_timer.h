// The agent's side of torch.distributed.elastic's file timer: a worker writes one line of JSON into
// a FIFO to say "kill me at this time unless I cancel it". This file has the table of timers and
// the parser of the line; FileTimerServer owns the FIFO, reads lines, sleeps until next_deadline()
// and reports what expired. Times are Unix seconds, as torch writes them, and are passed in. Pure;
// one thread.
//   line                                   effect
//   expiration_time >= 0                   acquire, or replace, the timer (pid, scope)
//   expiration_time < 0                    release it
// Any process that can write there may name any pid: the caller signals only the job's processes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster {

struct FileTimer {
  int pid = 0;
  std::string scope;
  double expiration_time = 0;
  int signal = 0;  // 0: log only. (Torch writes 0 or less.)

  friend bool operator==(const FileTimer&, const FileTimer&) = default;
};

// nullopt unless the line is one well-formed request; callers ignore lines from other programs.
std::optional<FileTimer> parse_file_timer_line(std::string_view line);

class FileTimers {
 public:
  void apply(FileTimer request);

  // Returns, by pid, one timer of each process that has an expired one: the earliest that has a
  // signal, else the earliest. Drops all timers of these processes, expired or not: the process is
  // about to die, or has been reported once.
  std::vector<FileTimer> expired(double now);

  std::optional<double> next_deadline() const;

  // Drops the timers of a process that has ended; its pid may be reused.
  void forget(int pid);

 private:
  std::map<std::pair<int, std::string>, FileTimer> timers_;  // Keyed by (pid, scope).
};

}  // namespace muster
