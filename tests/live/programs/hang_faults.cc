// A worker program for tests of the hang detector (hang_cells.py): one rank, the culprit, keeps the
// others waiting, or only seems to.
//
//   FAULT=blocked_read CULPRIT=2 FIFO=PATH muster --nproc-per-node 4 --no-python hang_faults
//
// After kHealthyCalls calls the culprit prints "fault SECONDS" (since the epoch) and runs the fault
// from kFaults, while the others go on calling. PAUSE_S: how long a fault lasts that ends by
// itself. FIFO: a pipe that a waiting rank reads; a byte written to it ends the fault. Afterwards
// all ranks make CALLS calls, a millisecond apart.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "muster/distributed.h"
#include "muster/section.h"

namespace {

using muster::GlobalRank;
using muster::GroupRank;
using muster::ProcessGroup;
using muster::ReduceOp;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int kHealthyCalls = 30;
constexpr int kExitOnError = 3;

std::string variable(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

const int culprit = std::stoi(variable("CULPRIT", "0"));
const int calls_after = std::stoi(variable("CALLS", "3"));
const Seconds pause_time(std::stod(variable("PAUSE_S", "1")));
std::vector<float> values(1000, 1.0F);

ProcessGroup world() {
  return muster::world();
}

int partner() {
  return (culprit + 1) % world().size();
}

void call() {
  world().all_reduce(values, ReduceOp::max);
}

// ---- what the culprit does

// `time`: how long to poll() the pipe first, a wait with a timer, which a plain read has not.
void read_fifo(std::optional<std::chrono::milliseconds> time = {}) {
  const int fd = open(variable("FIFO", "").c_str(), O_RDWR | O_CLOEXEC);
  pollfd ready{fd, POLLIN, 0};
  if (time) poll(&ready, 1, static_cast<int>(time->count()));
  char byte = 0;
  if (fd < 0 || read(fd, &byte, 1) != 1) throw std::runtime_error("cannot read $FIFO");
  close(fd);
}

void wait_for_lock() {
  std::mutex mutex;
  mutex.lock();
  std::thread holder([&] {
    std::this_thread::sleep_for(std::chrono::hours(1));
    mutex.unlock();
  });
  mutex.lock();
  holder.join();
}

void compute(Seconds time) {
  const auto end = Clock::now() + time;
  while (Clock::now() < end) {
  }
}

void loop_for_ever() {
  volatile bool is_done = false;
  while (!is_done) {
  }
}

void write_checkpoint() {
  const std::vector<char> bytes(1 << 20);
  std::ofstream file("/dev/null", std::ios::binary);
  const auto end = Clock::now() + pause_time;
  while (Clock::now() < end)
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush();
}

// The rank reads data that a slow child of fork() prepares, as a data loader does.
void load() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const pid_t child = fork();
  if (child == 0) {
    compute(pause_time);
    _exit(write(ends[1], "x", 1) == 1 ? 0 : 1);
  }
  char byte = 0;
  if (child < 0 || read(ends[0], &byte, 1) != 1) throw std::runtime_error("no data");
  close(ends[0]);
  close(ends[1]);
}

void sleep_in_section() {
  const muster::Section section("evaluation");
  std::this_thread::sleep_for(pause_time);
}

// The rank enters its call meanwhile, where the others are late.
void stop_soon() {
  std::thread([] {
    std::this_thread::sleep_for(pause_time / 3);
    kill(getpid(), SIGSTOP);
  }).detach();
}

// ---- groups

// The two ranks that share both groups enter them in opposite order.
void crossed_groups() {
  const GlobalRank both[] = {{std::min(culprit, partner())}, {std::max(culprit, partner())}};
  ProcessGroup first = muster::new_group(both, {.name = "first"});
  ProcessGroup second = muster::new_group(both, {.name = "second"});
  if (muster::rank() == partner()) std::swap(first, second);
  if (!first.is_member()) return;
  first.barrier();
  second.barrier();
}

// Most ranks do not wait for the culprit directly.
void chain() {
  ProcessGroup pair = world().split(muster::rank() / 2, 0, {.name = "tp"});
  ProcessGroup across = world().split(muster::rank() % 2, 0, {.name = "pp"});
  if (muster::rank() == culprit) read_fifo();
  pair.all_reduce(values);
  across.all_reduce(values);
}

// Makes the culprit late in each call for about $SECONDS, and so other ranks in their next one.
void straggle() {
  ProcessGroup pair = world().split(muster::rank() / 2, 0, {.name = "tp"});
  ProcessGroup across = world().split(muster::rank() % 2, 0, {.name = "dp"});
  const int calls = static_cast<int>(std::stod(variable("SECONDS", "10")) * 200);
  for (int i = 0; i < calls; ++i) {
    if (muster::rank() == culprit) std::this_thread::sleep_for(std::chrono::milliseconds(4));
    pair.all_reduce(values);
    across.all_reduce(values);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// ---- a healthy job

const std::vector<std::function<void()>> kLongScenes{
    [] { compute(pause_time); }, [] { std::this_thread::sleep_for(pause_time); }, write_checkpoint,
    load, sleep_in_section};

// Runs for $SECONDS by rank 0's clock: jitter, and each round another rank late for a good reason.
void be_healthy() {
  const auto end = Clock::now() + Seconds(std::stod(variable("SECONDS", "10")));
  std::mt19937 draw(static_cast<unsigned>(muster::rank()));
  if (muster::rank() == 0) compute(pause_time);  // Stands for compiling the first step.
  std::vector<float> ends{0};
  for (size_t round = 0; ends[0] == 0; ++round) {
    for (int i = 0; i < 100; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(draw() % 4000));
      call();
    }
    if (muster::rank() == static_cast<int>(round) % world().size())
      kLongScenes[round % kLongScenes.size()]();
    ends[0] = muster::rank() == 0 && Clock::now() > end ? 1 : 0;
    world().broadcast(ends, GroupRank{0});
  }
}

struct Fault {
  std::function<void()> of_culprit;
  std::function<void()> of_others = [] {};
};

const std::map<std::string, Fault> kFaults{
    {"none", {[] {}}},
    {"idle", {[] { read_fifo(); }, [] { read_fifo(); }}},
    {"blocked_read", {[] { read_fifo(); }}},
    {"timed_read", {[] { read_fifo(std::chrono::hours(1)); }}},
    {"lock", {wait_for_lock}},
    {"endless_loop", {loop_for_ever}},
    {"sleep", {[] { std::this_thread::sleep_for(std::chrono::hours(1)); }}},
    {"pause", {[] { std::this_thread::sleep_for(pause_time); }}},
    {"section", {sleep_in_section}},
    {"other_size",
     {[] {
        values.resize(2000);
        call();
      },
      call}},
    {"other_dtype",
     {[] {
        std::vector<double> doubles(values.size());
        world().all_reduce(doubles, ReduceOp::max);
      },
      call}},
    {"other_operation", {[] { world().all_gather_bytes("other"); }, call}},
    {"other_root",
     {[] { world().broadcast(values, GroupRank{1}); },
      [] { world().broadcast(values, GroupRank{0}); }}},
    {"other_reduction", {[] { world().all_reduce(values, ReduceOp::sum); }, call}},
    {"swapped",
     {[] {
        world().broadcast(values, GroupRank{0});
        call();
      },
      [] {
        call();
        world().broadcast(values, GroupRank{0});
      }}},
    {"barrier_too_few", {[] {}, [] { world().barrier(); }}},
    {"recv_without_send", {[] { world().recv(values, GroupRank{partner()}); }}},
    {"crossed_groups", {crossed_groups, crossed_groups}},
    {"chain", {chain, chain}},
    {"straggle", {straggle, straggle}},
    {"early_exit", {[] { std::exit(0); }}},
    {"stopped", {[] { raise(SIGSTOP); }}},
    {"stopped_inside", {stop_soon, [] { std::this_thread::sleep_for(pause_time); }}},
    {"killed", {[] { raise(SIGKILL); }}},
    {"healthy", {be_healthy, be_healthy}},
};

void print_time() {
  const Seconds now = std::chrono::system_clock::now().time_since_epoch();
  std::printf("fault %.3f\n", now.count());
  std::fflush(stdout);
}

}  // namespace

int main() {
  const Fault& fault = kFaults.at(variable("FAULT", "none"));
  try {
    muster::init_process_group();
    for (int i = 0; i < kHealthyCalls; ++i)
      call();
    if (muster::rank() == culprit) print_time();
    (muster::rank() == culprit ? fault.of_culprit : fault.of_others)();
    for (int i = 0; i < calls_after; ++i) {
      call();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    muster::destroy_process_group();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kExitOnError;
  }
}
