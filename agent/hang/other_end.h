// Finds the other end of a pipe or a socket that a process waits at: another process of the same
// tree, or something outside of it, as a server. Reads /proc/PID/{fd,fdinfo,net} and asks
// sock_diag(7) for the peer of a Unix socket; waits for no process. Cost: some 2 us for each
// descriptor of the tree, of which it reads 4,096, and 0.5 us for each TCP connection of the
// machine.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <sys/types.h>

namespace muster::hang {

struct OtherEnd {
  pid_t process = 0;      // One of the tree; 0: none, unknown, or the waiting process itself.
  std::string outside{};  // "10.0.0.5:443", "another process"; empty: it is not outside.
};

// `target`: the link of the descriptor, "pipe:[4711]" or "socket:[4711]"; empty: it may be any
// pipe, as in poll(2), whose descriptors /proc does not show. `writes`: the process waits to write.
// `tree`: all processes of the worker, parents first.
OtherEnd other_end(pid_t process, std::string_view target, bool writes,
                   std::span<const pid_t> tree);

// True if the process holds the other end of the pipe or Unix socket that it reads itself, and no
// other process of `tree` does: nothing will come. False if the files of one of them are hidden.
bool is_sole_holder(pid_t process, const std::string& target, std::span<const pid_t> tree);

}  // namespace muster::hang
