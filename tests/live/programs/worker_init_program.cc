// A rank for the tests of joining. Prints one line of "name=value" words for each time that it
// joins, or prints "error CODE: MESSAGE" and exits with 3.
//
//   --init-method URL --rank N --world-size N --timeout-ms N    InitOptions
//   --cycles N     joins and leaves N times
//   --fork         what calls in a child of fork() return, with and without the job
//   --spawn N      starts N ranks that do the rest, and exits with their result
//   --crash RANK   that rank is killed once all have joined, and the others wait for it
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "muster/init.h"
#include "muster/spawn.h"
#include "worker_lib/joining/job.h"

namespace {

struct Plan {
  muster::InitOptions options;
  int cycles = 1;
  bool fork = false;
  int spawn = 0;
  int crash = -1;
};

Plan read_plan(int argc, char** argv) {
  Plan plan;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (name == "--init-method") plan.options.init_method = value();
    if (name == "--rank") plan.options.rank = std::atoi(value().c_str());
    if (name == "--world-size") plan.options.world_size = std::atoi(value().c_str());
    if (name == "--timeout-ms")
      plan.options.timeout = std::chrono::milliseconds(std::atoi(value().c_str()));
    if (name == "--cycles") plan.cycles = std::atoi(value().c_str());
    if (name == "--fork") plan.fork = true;
    if (name == "--spawn") plan.spawn = std::atoi(value().c_str());
    if (name == "--crash") plan.crash = std::atoi(value().c_str());
  }
  return plan;
}

// One write(2), so that lines of several ranks are not interleaved.
void say(const std::string& line) {
  const std::string whole = line + "\n";
  if (write(STDOUT_FILENO, whole.data(), whole.size()) < 0) std::abort();
}

std::string number(const char* name, int value) {
  return std::string(name) + "=" + std::to_string(value) + " ";
}

// The number of nodes, and the sum of all ranks through the world group.
std::string describe_world() {
  const auto& world = muster::worker::current_job()->world();
  std::vector<std::string> nodes;
  std::string addresses;
  for (const auto& peer : world.peers) {
    if (std::find(nodes.begin(), nodes.end(), peer.node) == nodes.end()) nodes.push_back(peer.node);
    addresses += (addresses.empty() ? "" : ",") + peer.address;
  }
  std::vector<int> sum{muster::rank()};
  muster::world().all_reduce(sum);
  return number("nodes", static_cast<int>(nodes.size())) + number("sum", sum[0]) +
         "addresses=" + addresses;
}

// The number of keys in the job's store when all ranks have joined; -1 on ranks other than 0.
int count_keys() {
  muster::world().barrier();
  int keys = -1;
  if (muster::rank() == 0) {
    auto store = muster::worker::current_job()->connect_store(muster::Deadline::max());
    if (!store) std::abort();
    keys = static_cast<int>(store->num_keys().value());
  }
  muster::world().barrier();
  muster::world().monitored_barrier();  // Leaves some keys for the next joining to find.
  return keys;
}

void report(int cycle) {
  say(number("cycle", cycle) + number("rank", muster::rank()) +
      number("world_size", muster::world_size()) + number("local_rank", muster::local_rank()) +
      number("local_world_size", muster::local_world_size()) +
      number("node_rank", muster::node_rank()) + number("restart_count", muster::restart_count()) +
      number("keys", count_keys()) + describe_world());
}

template <typename Call>
std::string outcome_of(Call&& call) {
  try {
    call();
    return "went well";
  } catch (const muster::DistributedError& error) {
    return std::string(muster::name_of(error.code())) + ": " + error.what();
  }
}

void report_from_a_child(const char* when) {
  const pid_t child = fork();
  if (child == 0) {
    say(std::string(when) + " rank(): " + outcome_of([] { muster::rank(); }));
    say(std::string(when) + " init: " + outcome_of([] { muster::init_process_group(); }));
    say(std::string(when) + (muster::is_initialized() ? " initialized" : " not initialized"));
    muster::destroy_process_group();
    std::exit(0);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) say("the child failed");
}

int run(const Plan& plan) {
  for (int cycle = 0; cycle < plan.cycles; ++cycle) {
    muster::init_process_group(plan.options);
    report(cycle);
    if (plan.crash == muster::rank()) kill(getpid(), SIGKILL);
    if (plan.crash >= 0) muster::world().barrier();
    if (plan.fork) report_from_a_child("inside");
    if (plan.fork) muster::world().barrier();
    muster::destroy_process_group();
    if (plan.fork) report_from_a_child("afterwards");
  }
  return 0;
}

// Returns the exit code.
int run_and_report(const Plan& plan) {
  try {
    return run(plan);
  } catch (const muster::DistributedError& error) {
    std::string ranks;
    for (const muster::GlobalRank rank : error.failed_ranks())
      ranks += (ranks.empty() ? "" : ",") + std::to_string(rank.value);
    say(std::string("error ") + muster::name_of(error.code()) + " [" + ranks +
        "]: " + error.what());
    return 3;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Plan plan = read_plan(argc, argv);
  if (plan.spawn == 0) return run_and_report(plan);
  const muster::SpawnResult result =
      muster::spawn(plan.spawn, [&](int) { return run_and_report(plan); });
  say("spawned: " + result.message());
  return result.exit_code();
}
