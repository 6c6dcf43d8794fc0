// The agent's side of torch.distributed.elastic's file timer: a worker writes one line of JSON into
// a FIFO to say "unless I tell you otherwise by then, kill me". This is the table of those timers
// and the parser of the line; the shell owns the FIFO, reads lines, sleeps until next_deadline()
// and sends the signals. Time is unix seconds as torch writes them, handed in. Pure; one thread.
//   line                                   effect
//   expiration_time >= 0                   acquire, or replace, the timer (pid, scope)
//   expiration_time < 0                    release it
// The pid comes from whoever can write to the FIFO: the shell signals it only if it is one of the
// job's own processes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster {

struct FileTimerRequest {
  int pid = 0;
  std::string scope;
  double expiration_time = 0;
  int signal = 0;  // 0 or less: log only.

  friend bool operator==(const FileTimerRequest&, const FileTimerRequest&) = default;
};

// Fails on anything but one well-formed request; the message says what is wrong with the line. A
// failed line is to be ignored: the writer may be any program.
Result<FileTimerRequest> parse_file_timer_line(std::string_view line);

struct FileTimerExpiry {
  int pid = 0;
  int signal = 0;              // 0: nobody asked for a signal, so log only.
  std::string scope;           // The timer that decided: earliest with a signal, else earliest.
  double expiration_time = 0;  // Of that timer.
  std::vector<std::string> scopes;  // Every expired timer of this process, earliest first.

  friend bool operator==(const FileTimerExpiry&, const FileTimerExpiry&) = default;
};

class FileTimers {
 public:
  void apply(const FileTimerRequest& request);

  // One entry per process with an expired timer, by pid. All timers of these processes are dropped,
  // expired or not: the process is about to die, or has been reported once.
  std::vector<FileTimerExpiry> expired(double now);

  // The earliest expiration; nullopt if there is no timer.
  std::optional<double> next_deadline() const;

  // The process is gone; its number may be given to another one.
  void forget(int pid);

  bool empty() const { return timers_.empty(); }

 private:
  struct Timer {
    double expiration_time = 0;
    int signal = 0;
  };
  std::map<std::pair<int, std::string>, Timer> timers_;  // By (pid, scope).
};

}  // namespace muster
