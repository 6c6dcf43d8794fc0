#include "agent/process/master_port.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "rendezvous/net/address.h"
#include "rendezvous/net/interfaces.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// The sockets that listen on `port`, as /proc/PID/fd shows them. Lines of /proc/net/tcp: sl
// local:port remote:port state tx:rx tr:when retransmits uid timeout inode ...; state 0A is LISTEN
// (proc(5)).
std::set<std::string> listening_sockets(int port) {
  std::set<std::string> sockets;
  const std::string suffix = fmt::format(":{:04X}", port);
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      const std::vector<std::string> word{std::istream_iterator<std::string>(words), {}};
      if (word.size() > 9 && word[1].ends_with(suffix) && word[3] == "0A")
        sockets.insert("socket:[" + word[9] + "]");
    }
  }
  return sockets;
}

bool holds_one_of(const std::set<std::string>& sockets, const std::string& pid) {
  std::error_code error;
  for (fs::directory_iterator it("/proc/" + pid + "/fd", error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    if (sockets.contains(fs::read_symlink(it->path(), gone))) return true;
  }
  return false;
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

std::optional<std::string> port_owner(int port) {
  const std::set<std::string> sockets = listening_sockets(port);
  if (sockets.empty()) return std::nullopt;
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    if (name.find_first_not_of("0123456789") == std::string::npos && holds_one_of(sockets, name))
      return describe_process(name);
  }
  return std::nullopt;
}

UniqueFd bound_socket(const IpAddress& any) {
  sockaddr_storage raw{};
  const socklen_t length = SocketAddress{any, 0}.to_sockaddr(raw);
  UniqueFd fd(socket(raw.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return fd;
  const int one = 1;
  const int zero = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (any.is_v6()) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&raw), length) != 0) fd.reset();
  return fd;
}

}  // namespace

Result<MasterPort> MasterPort::reserve() {
  UniqueFd fd = bound_socket(IpAddress::any_v6());  // IPv4 as well.
  if (!fd) fd = bound_socket(IpAddress::any_v4());  // The kernel has no IPv6.
  if (!fd) {
    return fail(
        ExitCode::environment,
        fmt::format("cannot bind a port for the workers' MASTER_PORT: {}", std::strerror(errno)));
  }
  const int port = local_address_of(fd.get()).port;
  return MasterPort(std::move(fd), port);
}

Error name_port_owner(const Error& error, int port) {
  if (port <= 0 || error.code != ExitCode::environment) return error;
  const std::optional<std::string> owner = port_owner(port);
  if (!owner) return error;
  return {ExitCode::environment,
          fmt::format("port {} is in use by {}: stop that process, choose another port "
                      "(--master-port, --rdzv-endpoint; one node alone may leave the flag out)",
                      port, *owner)};
}

}  // namespace muster
