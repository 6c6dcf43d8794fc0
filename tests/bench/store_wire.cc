#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/store_load.h"

namespace muster {
namespace {

constexpr uint32_t kMagic = 0x3C85F7CE;

template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

int begin_to_connect(uint16_t port, int flags) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
  if (fd < 0) give_up_errno("socket");
  const int on = 1;
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 && errno != EINPROGRESS)
    give_up_errno("connect to port " + std::to_string(port));
  return fd;
}

}  // namespace

void give_up(const std::string& what) {
  fprintf(stderr, "store_load: %s\n", what.c_str());
  exit(1);
}

void give_up_errno(const std::string& what) {
  give_up(what + ": " + strerror(errno));
}

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

int64_t cpu_ns_of(int process) {
  if (process == 0) return 0;
  int64_t sum = 0;
  std::error_code gone;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task", gone)) {
    std::ifstream file(task.path() / "schedstat");
    int64_t ran = 0;
    if (file >> ran) sum += ran;
  }
  if (sum == 0) give_up("process " + std::to_string(process) + " shows no schedstat");
  return sum;
}

int64_t memory_bytes_of(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/status");
  std::string word;
  int64_t kib = 0;
  while (file >> word)
    if (word == "RssAnon:" && file >> kib) return kib * 1024;
  give_up("process " + std::to_string(process) + " shows no RssAnon");
}

std::string op_only(Op op) {
  return raw(op);
}

std::string number(uint64_t value) {
  return raw(value);
}

std::string counted(std::string_view text) {
  return number(text.size()).append(text);
}

std::string ping(uint32_t nonce) {
  return op_only(Op::kPing) + raw(nonce);
}

std::string ping_reply(uint32_t nonce) {
  return raw(nonce);
}

std::string set(std::string_view key, std::string_view value) {
  return op_only(Op::kSet) + counted(key) + counted(value);
}

std::string keys_request(Op op, const std::vector<std::string>& keys) {
  std::string bytes = op_only(op) + number(keys.size());
  for (const std::string& key : keys)
    bytes += counted(key);
  return bytes;
}

std::string handshake(uint32_t nonce) {
  return op_only(Op::kValidate) + raw(kMagic) + ping(nonce);
}

Connection::Connection(uint16_t port) : fd_(begin_to_connect(port, 0)) {
  const auto nonce = static_cast<uint32_t>(getpid());
  if (ask(handshake(nonce), 4) != ping_reply(nonce)) give_up("the server's first pong is wrong");
}

Connection Connection::arriving(uint16_t port) {
  Connection made;
  made.fd_ = begin_to_connect(port, SOCK_NONBLOCK);
  return made;
}

Connection& Connection::operator=(Connection&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

void Connection::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void Connection::set_blocking(bool blocking) {
  const int flags = fcntl(fd_, F_GETFL);
  if (fcntl(fd_, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK) != 0)
    give_up_errno("fcntl");
}

void Connection::send_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) give_up_errno("send");
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

std::string Connection::read_exactly(size_t size) {
  std::string bytes(size, '\0');
  for (size_t filled = 0; filled < size;) {
    const ssize_t got = recv(fd_, bytes.data() + filled, size - filled, 0);
    if (got < 0) give_up_errno("recv");
    if (got == 0) give_up("the server has closed the connection");
    filled += static_cast<size_t>(got);
  }
  return bytes;
}

std::string Connection::ask(std::string_view request, size_t reply_size) {
  send_all(request);
  return read_exactly(reply_size);
}

}  // namespace muster
