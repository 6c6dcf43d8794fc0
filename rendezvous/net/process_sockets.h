// The TCP sockets of a network namespace and the open files of a process, as /proc shows them
// (proc_pid_net(5), proc_pid_fd(5)).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/net/address.h"

namespace muster {

struct TcpEntry {
  SocketAddress local;
  SocketAddress remote;  // 0.0.0.0:0 or [::]:0 of a listening one.
  bool listens = false;
  std::string link;  // "socket:[4711]"; 0 for an end without a process.
};

// Returns those in the text of /proc/PID/net/tcp or tcp6; a malformed line is left out.
std::vector<TcpEntry> parse_tcp_table(std::string_view table);

// Calls each(number, target) for the links in /proc/`process`/fd until it returns false. Returns
// false if /proc hides them.
bool for_each_open_file(
    const std::string& process,
    const std::function<bool(const std::string& number, const std::string& target)>& each);

}  // namespace muster
