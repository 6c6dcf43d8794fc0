// The agent's side of torch.distributed.elastic's file timer: a worker writes one line of JSON into
// a FIFO to say "unless I tell you otherwise by then, kill me". This file has the table of those
// timers and the parser of the line; the shell owns the FIFO, reads lines, sleeps until
// next_deadline() and sends the signals. Times are Unix seconds, as torch writes them, and are
// passed in. Pure; one thread.
//   line                                   effect
//   expiration_time >= 0                   acquire, or replace, the timer (pid, scope)
//   expiration_time < 0                    release it
// Any process that can write to the FIFO may name any pid: the shell signals it only if it is one
// of the job's own processes.
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

// nullopt unless the line is one well-formed request. The caller ignores a bad line: any program
// may have written it.
std::optional<FileTimer> parse_file_timer_line(std::string_view line);

class FileTimers {
 public:
  void apply(FileTimer request);

  // For each process with an expired timer, by pid, the one that decides: the earliest with a
  // signal, else the earliest. All timers of these processes are dropped, expired or not: the
  // process is about to die, or has been reported once.
  std::vector<FileTimer> expired(double now);

  // The earliest expiration; nullopt if there is no timer.
  std::optional<double> next_deadline() const;

  // The process has ended; its pid may be reused.
  void forget(int pid);

 private:
  std::map<std::pair<int, std::string>, FileTimer> timers_;  // By (pid, scope).
};

}  // namespace muster
