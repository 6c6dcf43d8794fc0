// Ranks that provoke the failures of worker_origin_test.py, one scene for each way in which a
// failure of one rank spreads to several. Each rank logs the error that its call threw in the file
// "log" as "error RANK CODE RANKS TEXT", and exits with 3 like a program without error handling.
//
//   worker_origin_ranks FOLDER MILLISECONDS SCENE [ARGUMENT...]
//
// The time is the time-out of the calls that are meant to expire. A rank that is to be stopped logs
// "stops RANK" before it raises SIGSTOP.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "muster/distributed.h"
#include "muster/gradient_buckets.h"

namespace {

using muster::GlobalRank;
using muster::GroupRank;
using std::chrono::milliseconds;

constexpr int kExitOnError = 3;

std::string folder;
milliseconds short_time{0};
std::vector<std::string> words;

int argument(size_t index) {
  return std::stoi(words.at(index));
}

// Writes the line in one write.
void note(const std::string& line) {
  const std::string text = line + "\n";
  const int fd = open((folder + "/log").c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0 || write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    std::abort();
  close(fd);
}

void note_error(int rank, const muster::DistributedError& error) {
  std::string ranks;
  for (const GlobalRank failed : error.failed_ranks())
    ranks += (ranks.empty() ? "" : ",") + std::to_string(failed.value);
  note("error " + std::to_string(rank) + " " + name_of(error.code()) + " " +
       (ranks.empty() ? "-" : ranks) + " " + error.what());
}

[[noreturn]] void idle() {
  note("idle " + std::to_string(muster::rank()));
  for (;;)
    pause();
}

[[noreturn]] void stop() {
  note("stops " + std::to_string(muster::rank()));
  raise(SIGSTOP);
  idle();
}

// Calls that the culprit holds up get more time than those that then have to find it.
muster::CallOptions soon() {
  return {.timeout = short_time};
}
muster::CallOptions later() {
  return {.timeout = 5 * short_time};
}

void warm_up() {
  std::vector<float> values(4, 1.0F);
  for (int i = 0; i < 3; ++i)
    muster::world().all_reduce(values);
}

// ---- checkpoints, blocks, abort

void load() {
  muster::load_checkpoint(words.at(1));
}

void save_in_group() {
  std::vector<GlobalRank> ranks;
  for (int rank = argument(2); rank < muster::world_size(); ++rank)
    ranks.push_back({rank});
  muster::ProcessGroup group = muster::new_group(ranks);
  if (group.is_member()) muster::save_checkpoint(words.at(1), "bytes", {.group = group});
  if (!group.is_member()) idle();
}

// The second of two ranks ends because of the first, which stays; the others wait for both.
void load_in_pair() {
  const GlobalRank two[] = {{argument(2)}, {argument(3)}};
  muster::ProcessGroup pair = muster::new_group(two);
  if (muster::rank() == argument(2)) {
    try {
      muster::load_checkpoint(words.at(1), {.group = pair});
    } catch (const muster::DistributedError&) {
      idle();
    }
  }
  if (pair.is_member()) muster::load_checkpoint(words.at(1), {.group = pair});
  muster::world().barrier();
}

void zero_first() {
  muster::zero_first([] {
    if (muster::rank() == 0) throw std::runtime_error("no data set here");
  });
}

void local_zero_first() {
  const int bad = argument(1);
  muster::local_zero_first([&] {
    if (muster::rank() == bad) throw std::runtime_error("no data set here");
  });
}

void abort_group() {
  if (muster::rank() == argument(1)) muster::world().abort("the test says so");
  muster::world().barrier();
}

// ---- mismatches

void mismatch() {
  const std::string& kind = words.at(1);
  const bool odd = muster::rank() == argument(2);
  muster::ProcessGroup world = muster::world();
  std::vector<float> values(odd && kind == "count" ? 5000 : 4000, 1.0F);
  std::vector<double> doubles(4000, 1.0);
  if (kind == "operation" && odd) return world.barrier();
  if (kind == "dtype" && odd) return world.all_reduce(doubles);
  if (kind == "root") world.broadcast(values, GroupRank{odd ? 1 : 0});
  if (kind == "root") return world.barrier();
  if (kind == "skipped" && !odd) world.all_reduce(values);
  if (kind == "skipped") world.all_gather_bytes("after it");
  if (kind == "late" && odd) usleep(100'000);
  if (kind == "late" && odd) return world.barrier();
  if (kind == "majority late" && muster::rank() > 1) usleep(500'000);
  if (kind == "majority late" && odd) return world.barrier();
  world.all_reduce(values);
  world.barrier();
}

void buckets() {
  std::vector<float> a(3), b(muster::rank() == argument(1) ? 5 : 4);
  const std::vector<muster::Buffer> lists{a, b};
  const muster::GradientBuckets made(muster::world(), lists);
}

void shared() {
  static_cast<void>(muster::world().allocate_shared(muster::rank() == argument(1) ? 4096 : 8192));
}

void backend() {
  const bool odd = muster::rank() == argument(1);
  muster::new_group(muster::world().ranks(),
                    {.backend = odd ? muster::Backend::gloo : muster::Backend::cpu});
}

void message() {
  std::vector<float> values(muster::rank() == 0 ? 4 : 5);
  if (muster::rank() == 0) muster::world().send(values, GroupRank{1});
  if (muster::rank() == 1) muster::world().recv(values, GroupRank{0});
  muster::world().barrier();
}

// ---- what the kernel refuses to one rank

// Allows no memory beyond what is in use: not even the stack of a thread.
void refuse_memory() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  const rlim_t most = (pages + 64) * 4096;
  const rlimit limit{most, most};
  setrlimit(RLIMIT_AS, &limit);
}

void thread() {
  std::vector<float> values(4, 1.0F);
  if (muster::rank() == argument(1)) refuse_memory();
  muster::Work work = muster::world().all_reduce_async(values);
  work.wait();
}

void allocation() {
  if (muster::rank() == argument(1)) refuse_memory();
  static_cast<void>(muster::world().allocate_shared(64 << 20));
  muster::world().barrier();
}

// ---- missing ranks; `argument(1)` holds up all others

void late() {
  if (muster::rank() == argument(1)) idle();
  std::vector<float> values(static_cast<size_t>(argument(2)), 1.0F);
  muster::world().all_reduce(values, muster::ReduceOp::sum, soon());
}

void stopped() {
  if (muster::rank() == argument(1)) stop();
  std::vector<float> values(static_cast<size_t>(argument(2)), 1.0F);
  muster::world().all_reduce(values, muster::ReduceOp::sum, soon());
}

// One rank waits for the culprit in a group of two, the others wait for that rank.
void pair() {
  const int culprit = argument(1), between = argument(2);
  const GlobalRank two[] = {{std::min(culprit, between)}, {std::max(culprit, between)}};
  muster::ProcessGroup group = muster::new_group(two);
  muster::world().barrier();
  std::vector<float> values(100, 1.0F);
  if (muster::rank() == culprit) stop();
  if (muster::rank() == between) group.all_reduce(values, muster::ReduceOp::sum, later());
  muster::world().all_reduce(values, muster::ReduceOp::sum, soon());
}

// One rank receives from the culprit, or (irecv) waits for a Work that does.
void receive() {
  const int culprit = argument(1), between = argument(2);
  std::vector<float> values(100, 1.0F);
  muster::ProcessGroup world = muster::world();
  if (muster::rank() == culprit) stop();
  if (muster::rank() == between && words.at(0) == "recv")
    world.recv(values, GroupRank{culprit}, 0, later());
  if (muster::rank() == between && words.at(0) == "irecv")
    world.irecv(values, GroupRank{culprit}, 0, later()).wait();
  world.barrier(soon());
}

// Each rank waits for the next in a different way; the others wait for the first of them.
void chain() {
  const int culprit = argument(1), second = argument(2), first = argument(3);
  muster::ProcessGroup world = muster::world();
  const GlobalRank two[] = {{std::min(first, second)}, {std::max(first, second)}};
  muster::ProcessGroup group = muster::new_group(two);
  world.barrier();
  std::vector<float> values(100, 1.0F);
  if (muster::rank() == culprit) stop();
  if (muster::rank() == second) world.recv(values, GroupRank{culprit}, 0, later());
  if (muster::rank() == first || muster::rank() == second) group.barrier(later());
  world.barrier(soon());
}

// One rank gives up on the culprit and ends, while the others wait for that rank in a group without
// the culprit: it only passes on the cause.
void behind() {
  const int culprit = argument(1), first = argument(2);
  std::vector<GlobalRank> members{{first}};
  for (int rank = 0; rank < muster::world().size(); ++rank) {
    if (rank != culprit && rank != first) members.push_back({rank});
  }
  muster::ProcessGroup group = muster::new_group(members);
  muster::world().barrier();
  std::vector<float> values(100, 1.0F);
  if (muster::rank() == culprit) stop();
  if (muster::rank() == first) muster::world().recv(values, GroupRank{culprit}, 0, soon());
  group.broadcast(values, GroupRank{0}, later());
}

// The culprit keeps the root in the first of two calls while the others are in the second: in a
// reduce only the root waits for other ranks.
void earlier() {
  const int culprit = argument(1), root = argument(2);
  muster::ProcessGroup world = muster::world();
  std::vector<float> large(2'000'000, 1.0F), small(4, 1.0F);
  if (muster::rank() == culprit) stop();
  world.reduce(large, GroupRank{root}, muster::ReduceOp::sum,
               muster::rank() == root ? later() : soon());
  world.all_reduce(small, muster::ReduceOp::sum, soon());
}

// One rank waits for the culprit while a group is made, the others wait for that rank.
void new_group() {
  const int culprit = argument(1), between = argument(2);
  const GlobalRank two[] = {{std::min(culprit, between)}, {std::max(culprit, between)}};
  if (muster::rank() == culprit) stop();
  if (muster::rank() == between) muster::new_group(two, {.timeout = 5 * short_time});
  muster::new_group(muster::world().ranks(), {.timeout = short_time});
}

void monitored() {
  const int culprit = argument(1), between = argument(2);
  std::vector<float> values(100, 1.0F);
  if (muster::rank() == culprit) stop();
  if (muster::rank() == between) muster::world().monitored_barrier(later());
  muster::world().barrier(soon());
}

// Two ranks wait for each other in different groups.
void circle() {
  muster::ProcessGroup world = muster::world();
  muster::ProcessGroup other = muster::new_group(world.ranks(), {.name = "other"});
  if (muster::rank() == argument(1)) return other.barrier(soon());
  world.barrier(soon());
}

// Keeps collectives of several groups and messages in flight for ever; the test stops one of the
// ranks. What each rank does next is determined by the seed, which is the same on all of them.
void traffic() {
  std::mt19937 draw(static_cast<uint32_t>(argument(1)));
  muster::ProcessGroup world = muster::world();
  const int n = world.size();
  std::vector<muster::ProcessGroup> groups{world};
  const muster::GroupOptions timed{.timeout = short_time};
  groups.push_back(world.split(muster::rank() % 2, 0, timed));
  groups.push_back(world.split(muster::rank() / 2, 0, timed));
  groups.push_back(muster::new_group(world.ranks(), timed));
  std::vector<std::vector<float>> buffers;
  for (int i = 0; i < 4; ++i)
    buffers.emplace_back(std::vector<size_t>{4, 5000, 40'000, 300'000}[draw() % 4], 1.0F);
  std::vector<float> sent(20'000, 1.0F), received(20'000);
  for (int round = 0;; ++round) {
    if (round == 3) note("runs " + std::to_string(muster::rank()));
    std::vector<muster::Work> works;
    const auto shape = draw();
    for (size_t i = 0; i < groups.size(); ++i) {
      if ((shape >> i & 1) != 0)
        works.push_back(groups[i].all_reduce_async(buffers[i], muster::ReduceOp::max, soon()));
    }
    if ((shape >> 8 & 3) == 0) {
      const GroupRank next{(muster::rank() + 1) % n}, before{(muster::rank() + n - 1) % n};
      const muster::P2POp ops[] = {muster::P2POp::send(sent, next, 1),
                                   muster::P2POp::recv(received, before, 1)};
      for (muster::Work& work : world.batch_isend_irecv(ops, soon()))
        works.push_back(work);
    }
    if ((shape >> 10 & 3) == 0) std::reverse(works.begin(), works.end());
    for (muster::Work& work : works)
      work.wait();
    if ((shape >> 12 & 1) != 0) groups[shape >> 13 & 1].broadcast(buffers[0], GroupRank{0}, soon());
    if ((shape >> 14 & 1) != 0)
      groups[1].reduce(buffers[1], GroupRank{0}, muster::ReduceOp::max, soon());
  }
}

const std::map<std::string, std::function<void()>> kScenes{
    {"load", load},
    {"load_in_pair", load_in_pair},
    {"save_in_group", save_in_group},
    {"zero_first", zero_first},
    {"local_zero_first", local_zero_first},
    {"abort", abort_group},
    {"mismatch", mismatch},
    {"buckets", buckets},
    {"shared", shared},
    {"backend", backend},
    {"message", message},
    {"thread", thread},
    {"allocation", allocation},
    {"late", late},
    {"stopped", stopped},
    {"pair", pair},
    {"recv", receive},
    {"irecv", receive},
    {"chain", chain},
    {"behind", behind},
    {"earlier", earlier},
    {"new_group", new_group},
    {"monitored", monitored},
    {"circle", circle},
    {"traffic", traffic},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  folder = argv[1];
  short_time = milliseconds(std::atoi(argv[2]));
  words.assign(argv + 3, argv + argc);
  const int rank = std::atoi(std::getenv("RANK"));
  try {
    muster::init_process_group({.timeout = std::chrono::minutes{2}});
    warm_up();
    kScenes.at(words[0])();
  } catch (const muster::DistributedError& error) {
    note_error(rank, error);
    return kExitOnError;
  } catch (const std::runtime_error& error) {
    note("threw " + std::to_string(rank) + " " + error.what());
    return kExitOnError;
  }
  note("ended " + std::to_string(rank));
  muster::destroy_process_group();
  return 0;
}
