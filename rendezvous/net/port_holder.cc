#include "rendezvous/net/port_holder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <system_error>

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>

#include "rendezvous/net/process_sockets.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// Maps the link target of a descriptor, "socket:[4711]" (0 for an end without a process), to the
// address of the other end.
using Sockets = std::map<std::string, std::string>;

// Returns the sockets at a local port that listen, or those that do not.
Sockets sockets_at(int port, bool listening) {
  Sockets sockets;
  for (const char* name : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(name);
    const std::string table{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    for (const TcpEntry& one : parse_tcp_table(table)) {
      if (one.local.port == port && one.listens == listening)
        sockets.emplace(one.link, one.remote.to_string());
    }
  }
  return sockets;
}

// Returns the other end of a socket that the process holds; nullptr if it holds none of them.
const std::string* held_by(const std::string& pid, const Sockets& sockets) {
  const std::string* other_end = nullptr;
  for_each_open_file(pid, [&](const std::string&, const std::string& target) {
    const auto held = sockets.find(target);
    if (held != sockets.end()) other_end = &held->second;
    return other_end == nullptr;
  });
  return other_end;
}

// "pid 123 (python3 train.py), user alice"
std::string describe_process(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/cmdline", std::ios::binary);
  std::string command{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  command.erase(command.find_last_not_of('\0') + 1);
  std::ranges::replace_if(
      command, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  if (command.size() > 120) command = command.substr(0, 117) + "...";
  struct stat info{};
  std::string user = "?";
  if (stat(("/proc/" + pid).c_str(), &info) == 0) {
    const passwd* const entry = getpwuid(info.st_uid);
    user = entry != nullptr ? entry->pw_name : std::to_string(info.st_uid);
  }
  return fmt::format("pid {} ({}), user {}", pid, command, user);
}

struct Holder {
  std::string process;  // Empty: none, or /proc hides it.
  std::string other_end;
};

Holder holder_of(const Sockets& sockets) {
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (const std::string* const other_end = held_by(name, sockets))
      return {describe_process(name), *other_end};
  }
  return {"", sockets.begin()->second};
}

}  // namespace

std::optional<std::string> listener_at(int port) {
  const Sockets sockets = sockets_at(port, true);
  const Holder holder = sockets.empty() ? Holder{} : holder_of(sockets);
  return holder.process.empty() ? std::nullopt : std::optional(holder.process);
}

std::optional<std::string> connection_at(int port) {
  const Sockets sockets = sockets_at(port, false);
  if (sockets.empty() || !sockets_at(port, true).empty()) return std::nullopt;
  const Holder holder = holder_of(sockets);
  int first = 0, last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  const bool is_local = port >= first && port <= last;
  return fmt::format(
      "port {} is the local end of a connection of {}, to {}: choose {} (--master-port, "
      "--rdzv-endpoint; one node alone may leave the flag out)",
      port, holder.process.empty() ? "a process that has ended or is hidden" : holder.process,
      holder.other_end,
      is_local ? fmt::format("a port outside of {} to {} (net.ipv4.ip_local_port_range), from "
                             "which the kernel picks ports for outgoing connections",
                             first, last)
               : "another port");
}

}  // namespace muster
