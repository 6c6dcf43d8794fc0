// What a waiting thread waits for, from its line in /proc/PID/task/TID/syscall (proc(5)): the
// system call's name, whether a timer will end it, and the descriptor or child that it waits for.
// Numbers are those of the machine that this is compiled for. Pure.
//
// The line shows registers only. A time-out that is a number (poll, epoll_wait) is known. One that
// is an address is known to be there, and its length is not: process_vm_readv(2) takes the memory
// lock of the process, and would hang with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "rendezvous/base/time.h"

namespace muster::hang {

enum class WaitsFor : uint8_t { other, descriptor, thread, child };

struct SystemCall {
  bool is_known = false;  // Else nothing below is, and `name` is made of the number.
  std::string name{};     // "read"; empty: it waits outside of a system call, as in a page fault.
  WaitsFor waits_for = WaitsFor::other;
  int descriptor = -1;
  pid_t child = 0;  // 0: any. Counted in the process's own PID namespace.
  bool has_timer = false;
  std::optional<Duration> timeout{};

  friend bool operator==(const SystemCall&, const SystemCall&) = default;
};

// nullopt: the thread does not wait ("running"), or the text is no such line.
std::optional<SystemCall> parse_system_call(std::string_view text);

// "read() of a pipe (descriptor 5)", "clock_nanosleep()", "poll() with a time-out of 5.0 s".
// `target`: where /proc/PID/fd/N leads; empty: unknown.
std::string describe(const SystemCall& call, std::string_view target);

}  // namespace muster::hang
