// Parses what a thread waits for in its line of /proc/PID/task/TID/syscall (proc(5)): the system
// call's name, whether a timer will end it, and the descriptor or child that it waits for. Call
// numbers are those of the target machine. Pure.
//
// The line shows registers only: a timeout passed as a number (poll, epoll_wait) is known, but of
// one passed by address only that it is there. process_vm_readv(2) would take the memory lock of
// the process, and hang with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "rendezvous/base/time.h"

namespace muster::hang {

// Watched: one of those that the call's descriptor, of epoll(7), watches.
enum class WaitsFor : uint8_t { other, descriptor, thread, child, watched };

struct SystemCall {
  bool is_known = false;  // False: only `name` is set, from the number.
  std::string name{};     // "read"; empty: waits outside of a system call, as in a page fault.
  WaitsFor waits_for = WaitsFor::other;
  int descriptor = -1;
  pid_t child = 0;  // 0: any. In the process's own PID namespace.
  bool has_timer = false;
  std::optional<Duration> timeout{};

  friend bool operator==(const SystemCall&, const SystemCall&) = default;
};

// nullopt: the thread does not wait ("running"), or the text is malformed.
std::optional<SystemCall> parse_system_call(std::string_view text);

// `target`: the link of a descriptor.
bool is_terminal(std::string_view target);

// True for a call that waits for bytes, a signal of a descriptor that it watches included.
bool reads(const SystemCall& call);

// True for poll(2) and ppoll(2), whose descriptors /proc does not show.
bool polls(const SystemCall& call);

// "read() of a pipe (descriptor 5)", "clock_nanosleep()", "poll() with a time-out of 5.0 s".
// `target`: the link /proc/PID/fd/N; empty: unknown.
std::string describe(const SystemCall& call, std::string_view target);

}  // namespace muster::hang
