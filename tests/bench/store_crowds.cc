// The modes of store_load in which the number of connections matters.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <thread>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/bench/store_load.h"

namespace muster {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

double largest(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

std::vector<Connection> connect_many(uint16_t port, size_t count) {
  std::vector<Connection> lines;
  lines.reserve(count);
  for (size_t i = 0; i < count; ++i)
    lines.emplace_back(port);
  return lines;
}

class Poller {
 public:
  Poller() : epoll_(epoll_create1(EPOLL_CLOEXEC)), events_(1024) {}
  ~Poller() { ::close(epoll_); }
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  void add(int fd, uint32_t what, size_t index) {
    epoll_event event{.events = what, .data = {.u64 = index}};
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) give_up_errno("epoll_ctl");
  }

  void change(int fd, uint32_t what, size_t index) {
    epoll_event event{.events = what, .data = {.u64 = index}};
    if (epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event) != 0) give_up_errno("epoll_ctl");
  }

  // Calls handle(index) for all that are ready.
  template <typename Handle>
  void turn(const Handle& handle) {
    const int ready = epoll_wait(epoll_, events_.data(), static_cast<int>(events_.size()), 30'000);
    if (ready <= 0) give_up("nothing within 30 s");
    for (int i = 0; i < ready; ++i)
      handle(static_cast<size_t>(events_[static_cast<size_t>(i)].data.u64));
  }

 private:
  int epoll_;
  std::vector<epoll_event> events_;
};

int64_t wall_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

// Reads the byte that wakes a waiter. Returns when the kernel received it, by the wall clock:
// waiters are other processes, mostly on other machines, so the time that one thread takes to read
// four thousand of them says nothing about the server.
int64_t woken_at(const Connection& line) {
  char byte = 1;
  iovec into{.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(timespec))];
  msghdr message{};
  message.msg_iov = &into;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(line.fd(), &message, 0) != 1 || byte != 0) give_up("a waiter was not woken");
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_TIMESTAMPNS) give_up("no time of arrival");
  timespec at{};
  std::memcpy(&at, CMSG_DATA(header), sizeof at);
  return at.tv_sec * 1'000'000'000 + at.tv_nsec;
}

double wake_once(Connection& setter, std::vector<Connection>& lines, const std::string& key) {
  const std::string request = keys_request(Op::kWait, {key}) + ping(9);
  for (Connection& line : lines)
    line.send_all(request);
  for (Connection& line : lines)  // The pong after it confirms that the waiter is parked.
    if (line.read_exactly(4) != ping_reply(9)) give_up("a waiter was not parked");
  const int64_t began = wall_ns();
  setter.send_all(set(key, "1"));
  int64_t last = began;
  for (const Connection& line : lines)
    last = std::max(last, woken_at(line));
  return static_cast<double>(last - began) / 1e6;
}

// Pings repeatedly until stopped, and records how long each ping took.
class Pinger {
 public:
  explicit Pinger(uint16_t port) : line_(port), thread_([this] { run(); }) {}
  ~Pinger() { stop(); }

  std::vector<double> stop() {
    stopped_ = true;
    if (thread_.joinable()) thread_.join();
    return std::move(took_ms_);
  }

 private:
  void run() {
    for (uint32_t nonce = 0; !stopped_; ++nonce) {
      const int64_t began = now_ns();
      if (line_.ask(ping(nonce), 4) != ping_reply(nonce)) give_up("the old client's pong is wrong");
      took_ms_.push_back(static_cast<double>(now_ns() - began) / 1e6);
    }
  }

  Connection line_;
  std::atomic<bool> stopped_ = false;
  std::vector<double> took_ms_;
  std::thread thread_;
};

// All connect at once, and each validates and pings as soon as it can. Returns the milliseconds
// until the last pong.
double arrive(uint16_t port, size_t count) {
  Poller poller;
  std::vector<Connection> lines;
  lines.reserve(count);
  std::vector<bool> greeted(count, false);
  const int64_t began = now_ns();
  for (size_t i = 0; i < count; ++i) {
    lines.push_back(Connection::arriving(port));
    poller.add(lines.back().fd(), EPOLLOUT, i);
  }
  const std::string greeting = handshake(10);
  for (size_t done = 0; done < count;) {
    poller.turn([&](size_t index) {
      if (!greeted[index]) {
        lines[index].send_all(greeting);
        greeted[index] = true;
        poller.change(lines[index].fd(), EPOLLIN, index);
      } else {
        if (lines[index].read_exactly(4) != ping_reply(10)) give_up("a newcomer's pong is wrong");
        poller.change(lines[index].fd(), 0, index);
        ++done;
      }
    });
  }
  return static_cast<double>(now_ns() - began) / 1e6;
}

}  // namespace

Figures wake_waiters(const LoadOptions& options) {
  Connection setter(options.port);
  std::vector<Connection> lines = connect_many(options.port, options.count);
  const int on = 1;
  for (const Connection& line : lines)
    if (setsockopt(line.fd(), SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) != 0)
      give_up_errno("SO_TIMESTAMPNS");
  std::vector<double> took;
  for (size_t round = 0; round < options.rounds; ++round)
    took.push_back(
        wake_once(setter, lines, "/wake" + options.suffix + "/" + std::to_string(round)));
  return {{"ms", median(took)}, {"worst_ms", largest(took)}};
}

Figures hold_idle(const LoadOptions& options) {
  const int64_t before = memory_bytes_of(options.server);
  std::vector<Connection> lines = connect_many(options.port, options.count);
  const int64_t after = memory_bytes_of(options.server);
  for (Connection& line : lines)
    line.send_all(ping(11));
  for (Connection& line : lines)
    if (line.read_exactly(4) != ping_reply(11)) give_up("a held connection's pong is wrong");
  return {{"held", static_cast<double>(lines.size())},
          {"bytes_each", static_cast<double>(after - before) / static_cast<double>(options.count)}};
}

Figures storm(const LoadOptions& options) {
  std::vector<double> worst, calm, served;
  for (size_t round = 0; round < options.rounds; ++round) {
    Pinger quiet(options.port);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    calm.push_back(largest(quiet.stop()));
    Pinger pinger(options.port);
    served.push_back(arrive(options.port, options.count));
    worst.push_back(largest(pinger.stop()));
  }
  return {{"ping_max_ms", median(worst)},
          {"ping_worst_ms", largest(worst)},
          {"calm_max_ms", median(calm)},
          {"served_ms", median(served)}};
}

}  // namespace muster
