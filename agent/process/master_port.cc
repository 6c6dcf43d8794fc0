#include "agent/process/master_port.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <dirent.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "rendezvous/net/abstract_address.h"

namespace muster {
namespace {

std::string slurp_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Inodes of the sockets that listen on `port`. Lines of /proc/net/tcp: sl local:port remote:port
// state tx:rx tr:when retransmits uid timeout inode ...; state 0A is LISTEN (proc(5)).
std::set<std::string> listening_inodes(int port) {
  std::set<std::string> inodes;
  const std::string suffix = fmt::format(":{:04X}", port);
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::istringstream lines(slurp_file(table));
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      const std::vector<std::string> word{std::istream_iterator<std::string>(words), {}};
      if (word.size() > 9 && word[1].ends_with(suffix) && word[3] == "0A") inodes.insert(word[9]);
    }
  }
  return inodes;
}

bool holds_socket(const std::string& pid, const std::set<std::string>& inodes) {
  const std::string folder = "/proc/" + pid + "/fd";
  DIR* const fds = opendir(folder.c_str());
  if (fds == nullptr) return false;
  bool found = false;
  while (const dirent* entry = readdir(fds)) {
    char target[64];
    const ssize_t n = readlink((folder + "/" + entry->d_name).c_str(), target, sizeof target);
    std::string_view link(target, n > 0 ? static_cast<size_t>(n) : 0);
    if (!link.starts_with("socket:[") || !link.ends_with("]")) continue;
    link = link.substr(8, link.size() - 9);
    if (inodes.contains(std::string(link))) found = true;
  }
  closedir(fds);
  return found;
}

std::string describe_process(const std::string& pid) {
  std::string command = slurp_file("/proc/" + pid + "/cmdline");
  while (!command.empty() && command.back() == '\0')
    command.pop_back();
  for (char& c : command) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  if (command.size() > 120) command = command.substr(0, 117) + "...";
  struct stat info{};
  std::string user = "?";
  if (stat(("/proc/" + pid).c_str(), &info) == 0) {
    const passwd* const entry = getpwuid(info.st_uid);
    user = entry != nullptr ? entry->pw_name : std::to_string(info.st_uid);
  }
  return fmt::format("pid {} ({}), user {}", pid, command, user);
}

// Dual stack where the kernel has IPv6, plain IPv4 elsewhere.
int bound_socket(int port) {
  const int one = 1;
  const int zero = 0;
  int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0) {
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(static_cast<uint16_t>(port));
    if (bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof any) == 0) return fd;
    const int error = errno;
    close(fd);
    errno = error;
    if (error == EADDRINUSE || error == EACCES) return -1;
  }
  fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(static_cast<uint16_t>(port));
  if (bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof any) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

int bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  if (address.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port);
}

AbstractAddress lock_address(int port) {
  return AbstractAddress(fmt::format("muster-port-{}", port));
}

int lock_port(int port) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const AbstractAddress address = lock_address(port);
  if (bind(fd, address.get(), address.size) == 0 && listen(fd, 1) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

// The process that listens on the lock, by the credentials that the kernel recorded at listen(2).
std::string lock_owner(int port) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const AbstractAddress address = lock_address(port);
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool known = connect(fd, address.get(), address.size) == 0 &&
                     getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  close(fd);
  return known ? describe_process(std::to_string(peer.pid)) : "its process cannot be seen";
}

std::string occupied(int port, const std::string& owner) {
  return fmt::format(
      "port {} is in use by {}: stop that process, choose another port (--master-port, "
      "--rdzv-endpoint; one node alone may leave the flag out)",
      port, owner);
}

}  // namespace

Result<MasterPort> MasterPort::reserve(int port) {
  const int fd = bound_socket(port);
  const int error = errno;
  if (fd < 0 && error == EADDRINUSE) {
    const auto owner = port_owner(port);
    return fail(ExitCode::environment,
                occupied(port, owner ? *owner : "a process that this user may not see"));
  }
  if (fd < 0) {
    const char* const remedy =
        error == EACCES ? " (ports below 1024 need root: choose a higher --master-port)" : "";
    return fail(ExitCode::environment,
                fmt::format("cannot bind port {} for the workers' MASTER_PORT: {}{}", port,
                            std::strerror(error), remedy));
  }
  const int got = bound_port(fd);
  const int lock_fd = lock_port(got);
  if (lock_fd < 0 && errno == EADDRINUSE) {
    close(fd);
    return fail(ExitCode::environment, occupied(port, "another muster job: " + lock_owner(port)));
  }
  return MasterPort(fd, lock_fd, got);
}

MasterPort::MasterPort(MasterPort&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      lock_fd_(std::exchange(other.lock_fd_, -1)),
      port_(std::exchange(other.port_, 0)) {}

MasterPort& MasterPort::operator=(MasterPort&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(lock_fd_, other.lock_fd_);
  std::swap(port_, other.port_);
  return *this;
}

MasterPort::~MasterPort() {
  if (fd_ >= 0) close(fd_);
  if (lock_fd_ >= 0) close(lock_fd_);
}

std::optional<std::string> port_owner(int port) {
  const std::set<std::string> inodes = listening_inodes(port);
  if (inodes.empty()) return std::nullopt;
  DIR* const proc = opendir("/proc");
  if (proc == nullptr) return std::nullopt;
  std::optional<std::string> owner;
  while (const dirent* entry = readdir(proc)) {
    const std::string name = entry->d_name;
    if (name.find_first_not_of("0123456789") != std::string::npos || !holds_socket(name, inodes))
      continue;
    owner = describe_process(name);
    break;
  }
  closedir(proc);
  return owner;
}

Error name_port_owner(const Error& error, int port) {
  const auto owner = port > 0 && error.code == ExitCode::environment ? port_owner(port)
                                                                     : std::optional<std::string>();
  return owner ? Error{ExitCode::environment, occupied(port, *owner)} : error;
}

}  // namespace muster
