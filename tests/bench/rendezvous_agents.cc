// Measures how long N agents need from a common release until the last one has its rank: real
// Rendezvous objects with their threads and sockets on loopback; no workers are started.
//
//   rendezvous_agents [--agents N] [--rounds R] [--in-process | --processes]
//                     [--port P] [--places C] [--etcd HOST:PORT,...]
//
// --processes forks one process per agent (the default), --in-process starts N threads. All of them
// wait for a flag in shared memory; the first one becomes the host, at port P (0: any), and takes
// at most C connections at a time. With --etcd they meet through that cluster. Prints one line of
// JSON: the milliseconds of each run, and their median.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/backends/rendezvous.h"

namespace muster {
namespace {

struct Board {
  std::atomic<uint32_t> released{0};
  std::atomic<int> waiting{0};
  std::atomic<int> formed{0};
  std::atomic<int> failed{0};
  std::atomic<int> closed{0};
  std::atomic<int64_t> last_ns{0};
};

struct Plan {
  int agents = 128;
  int runs = 5;
  bool processes = true;
  int port = 0;
  size_t places = Places::kUnlimited;
  std::optional<EtcdOptions> etcd;
};

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

void wait_for_release(Board& board) {
  board.waiting.fetch_add(1);
  while (board.released.load() == 0)
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&board.released), FUTEX_WAIT, 0, nullptr,
            nullptr, 0);
}

void release(Board& board) {
  board.released.store(1);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&board.released), FUTEX_WAKE, INT32_MAX, nullptr,
          nullptr, 0);
}

RendezvousOptions agent_options(const Plan& plan, int index, int port) {
  RendezvousOptions options;
  options.way = RendezvousOptions::Way::endpoint;
  options.job_id = "bench";
  options.host = "127.0.0.1";
  options.port = port;
  options.connections_max = plan.places;
  if (plan.etcd) {
    options.way = RendezvousOptions::Way::etcd;
    options.etcd = plan.etcd;
    options.job_id = fmt::format("bench-{}-{}", getppid(), port);
    options.port = 0;
  }
  options.join.host_name = fmt::format("node{}", index);
  options.join.slots = 8;
  options.join.nodes_min = options.join.nodes_max = plan.agents;
  options.join.last_call = std::chrono::seconds(30);
  options.join.join_timeout = std::chrono::seconds(120);
  options.join.lease = std::chrono::seconds(30);
  return options;
}

// One agent from its creation to the end of the job.
void live(Board& board, const RendezvousOptions& options) {
  boost::asio::io_context loop;
  const auto work = boost::asio::make_work_guard(loop);
  std::unique_ptr<Rendezvous> meeting;
  Rendezvous::Handlers on;
  const auto leave = [&] {
    meeting->close([&] {
      board.closed.fetch_add(1);
      loop.stop();
    });
  };
  on.round = [&](const membership::Round& round) {
    const int64_t now = now_ns();
    int64_t last = board.last_ns.load();
    while (last < now && !board.last_ns.compare_exchange_weak(last, now)) {
    }
    board.formed.fetch_add(1);
    meeting->tell(member::WorkersDone{round.epoch});
  };
  on.stop = [](const member::StopWorkers&) {};
  on.leave_announced = [] {};
  on.ended = [&](const membership::End&) { leave(); };
  on.failed = [&](const Error& error) {
    std::fprintf(stderr, "%s\n", error.message.c_str());
    board.failed.fetch_add(1);
    leave();
  };
  on.say = [](const std::string&) {};
  Result<std::unique_ptr<Rendezvous>> made = make_rendezvous(loop, options, std::move(on));
  if (!made) {
    std::fprintf(stderr, "%s\n", made.error().message.c_str());
    std::abort();
  }
  meeting = std::move(*made);
  wait_for_release(board);
  meeting->tell(member::ReadyForRound{});
  loop.run();
  meeting.reset();
}

int unused_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0) std::abort();
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  close(fd);
  return ntohs(address.sin_port);
}

double milliseconds_of_run(Board& board, const Plan& plan) {
  while (board.waiting.load() < plan.agents)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // Lets the agents that have announced themselves fall asleep.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const int64_t begin = now_ns();
  release(board);
  while (board.closed.load() < plan.agents && board.failed.load() == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (board.formed.load() != plan.agents) {
    std::fprintf(stderr, "only %d of %d agents got a rank\n", board.formed.load(), plan.agents);
    std::exit(1);
  }
  return static_cast<double>(board.last_ns.load() - begin) / 1e6;
}

double run_processes(Board& board, const Plan& plan, int port) {
  for (int i = 0; i < plan.agents; ++i) {
    const pid_t child = fork();
    if (child < 0) std::abort();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // A failed run leaves no process behind.
      live(board, agent_options(plan, i, port));
      _exit(0);
    }
  }
  const double milliseconds = milliseconds_of_run(board, plan);
  while (wait(nullptr) > 0) {
  }
  return milliseconds;
}

double run_threads(Board& board, const Plan& plan, int port) {
  std::vector<std::thread> threads;
  for (int i = 0; i < plan.agents; ++i)
    threads.emplace_back([&board, &plan, i, port] { live(board, agent_options(plan, i, port)); });
  const double milliseconds = milliseconds_of_run(board, plan);
  for (std::thread& thread : threads)
    thread.join();
  return milliseconds;
}

Plan read_plan(int argc, char** argv) {
  Plan plan;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--agents" && i + 1 < argc) {
      plan.agents = std::atoi(argv[++i]);
    } else if (flag == "--rounds" && i + 1 < argc) {
      plan.runs = std::atoi(argv[++i]);
    } else if (flag == "--port" && i + 1 < argc) {
      plan.port = std::atoi(argv[++i]);
    } else if (flag == "--places" && i + 1 < argc) {
      plan.places = std::strtoul(argv[++i], nullptr, 10);
    } else if (flag == "--etcd" && i + 1 < argc) {
      plan.etcd = *read_etcd_options(argv[++i], {}, [](std::string_view) { return std::nullopt; });
    } else if (flag == "--in-process") {
      plan.processes = false;
    } else if (flag != "--processes") {
      std::fprintf(stderr, "unknown flag %s\n", argv[i]);
      std::exit(2);
    }
  }
  return plan;
}

void raise_descriptor_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int bench(const Plan& plan) {
  raise_descriptor_limit();
  std::vector<double> all;
  for (int run = 0; run < plan.runs; ++run) {
    void* memory =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    Board& board = *new (memory) Board;
    const int port = plan.port != 0 ? plan.port : unused_port();
    all.push_back(plan.processes ? run_processes(board, plan, port)
                                 : run_threads(board, plan, port));
    munmap(memory, sizeof(Board));
  }
  std::vector<double> sorted = all;
  std::sort(sorted.begin(), sorted.end());
  fmt::print("{{\"agents\": {}, \"mode\": \"{}\", \"median_ms\": {:.1f}, \"all_ms\": [{:.1f}]}}\n",
             plan.agents, plan.processes ? "processes" : "in-process", sorted[sorted.size() / 2],
             fmt::join(all, ", "));
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  return muster::bench(muster::read_plan(argc, argv));
}
