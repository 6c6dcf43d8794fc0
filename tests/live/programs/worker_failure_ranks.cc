// Ranks that experience the failures of worker_failure_test.py and record what they saw: one line
// of the file "log" for each event, with the time of the system's steady clock in nanoseconds.
//
//   worker_failure_ranks FOLDER reduce COUNT        all_reduce of COUNT floats for ever
//   worker_failure_ranks FOLDER wait OPERATION      all but rank 1 call it and wait for rank 1
//   worker_failure_ranks FOLDER abort               the same; the file "go" makes rank 0 abort
//   worker_failure_ranks FOLDER stall MILLISECONDS  all_reduce for ever, with that time-out
//   worker_failure_ranks FOLDER leave               rank 1 leaves, the others go on reducing
//   worker_failure_ranks FOLDER churn               joins, groups, operations, leaves, for ever
//   worker_failure_ranks FOLDER fork                rank 1 has a forked child that outlives it
//   worker_failure_ranks FOLDER train RANK STEP     the rank is killed in that step, the first time
//   worker_failure_ranks FOLDER sleep               no rank calls anything; SIGTERM ends it
//   worker_failure_ranks FOLDER throw               rank 1 throws with an all_reduce in flight
//   worker_failure_ranks FOLDER exec                rank 1 becomes another program
//   worker_failure_ranks FOLDER close WHEN          rank 1 closes every descriptor; "early": before
//                                                   it joins, "late": then it leaves, "amid": then
//                                                   all go on
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "muster/distributed.h"

namespace {

using namespace std::chrono_literals;

constexpr int kExitOnError = 3;
constexpr int kExitOnOwnError = 4;

std::string folder;

std::string environment(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

int own_rank() {
  return std::atoi(environment("RANK", "0").c_str());
}

bool exists(const std::string& name) {
  return access((folder + "/" + name).c_str(), F_OK) == 0;
}

// "WHAT RANK RESTART NANOSECONDS REST", in one write.
void note(const std::string& what, const std::string& rest = "-") {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  std::ostringstream line;
  line << what << ' ' << own_rank() << ' ' << environment("TORCHELASTIC_RESTART_COUNT", "0") << ' '
       << std::chrono::nanoseconds(now).count() << ' ' << rest << '\n';
  const std::string text = line.str();
  const int fd = open((folder + "/log").c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0 || write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    std::abort();
  close(fd);
}

// "CODE RANKS OPERATION TEXT".
void note_error(const muster::DistributedError& error) {
  std::string ranks;
  for (const muster::GlobalRank rank : error.failed_ranks())
    ranks += (ranks.empty() ? "" : ",") + std::to_string(rank.value);
  note("error", std::string(name_of(error.code())) + " " + (ranks.empty() ? "-" : ranks) + " " +
                    (error.operation().empty() ? "-" : error.operation()) + " " + error.what());
}

void idle() {
  note("idle");
  for (;;)
    pause();
}

void reduce_for_ever(size_t count, const muster::CallOptions& options = {}) {
  std::vector<float> values(count, 1.0F);
  for (uint64_t step = 0;; ++step) {
    muster::world().all_reduce(values, muster::ReduceOp::max, options);
    if (step == 5) note("runs");
  }
}

// Waits in an operation that rank 1 never calls.
void wait_for_rank_1(const std::string& operation) {
  muster::ProcessGroup world = muster::world();
  const int size = world.size();
  std::vector<int32_t> small(8), large(8 * static_cast<size_t>(size)), received(large.size());
  const std::map<std::string, std::function<void()>> operations{
      {"barrier", [&] { world.barrier(); }},
      {"monitored_barrier", [&] { world.monitored_barrier(); }},
      {"broadcast", [&] { world.broadcast(small, muster::GroupRank{1}); }},
      {"reduce",
       [&] {
         world.reduce(small, muster::GroupRank{0});
         world.barrier();
       }},
      {"all_gather", [&] { world.all_gather(small, large); }},
      {"reduce_scatter", [&] { world.reduce_scatter(large, small); }},
      {"all_to_all", [&] { world.all_to_all(large, received); }},
      {"recv", [&] { world.recv(small, muster::GroupRank{1}); }},
      {"recv_any", [&] { world.recv_any(small); }},
      {"async", [&] { static_cast<void>(world.all_reduce_async(small).wait()); }},
      {"irecv", [&] { static_cast<void>(world.irecv(small, muster::GroupRank{1}).wait()); }},
      {"new_group", [&] { muster::new_group({{0}, {1}, {2}, {3}}); }},
  };
  world.barrier();
  if (muster::rank() == 1) idle();
  note("waits");
  operations.at(operation)();
}

void abort_from_a_thread() {
  std::thread aborter;
  muster::ProcessGroup world = muster::world();
  world.barrier();
  if (muster::rank() == 1) idle();
  if (muster::rank() == 0) {
    aborter = std::thread([world]() mutable {
      while (!exists("go"))
        std::this_thread::sleep_for(1ms);
      note("aborts");
      world.abort("the test says so");
    });
    aborter.detach();
  }
  note("waits");
  world.barrier();
}

void leave_rank_1() {
  std::vector<float> values(4, 1.0F);
  for (int step = 0; step < 10; ++step)
    muster::world().all_reduce(values);
  if (muster::rank() == 1) {
    note("leaves");
    muster::destroy_process_group();
    idle();
  }
  try {
    reduce_for_ever(4);
  } catch (const muster::DistributedError& error) {
    note_error(error);
    idle();  // A rank that ended now would be blamed next.
  }
}

// Sets everything up and tears it down, over and over.
void churn() {
  for (int round = 0;; ++round) {
    muster::init_process_group();
    if (round == 1) note("runs");
    std::vector<float> values(1000, 1.0F);
    muster::ProcessGroup world = muster::world();
    world.all_reduce(values);
    muster::ProcessGroup half = world.split(muster::rank() % 2);
    half.all_reduce(values);
    muster::ProcessGroup others = muster::new_group({{0}, {1}});
    if (others.is_member()) others.broadcast(values, muster::GroupRank{1});
    world.barrier();
    muster::destroy_process_group();
  }
}

// The child holds copies of all descriptors that the rank has open.
void fork_a_child() {
  muster::world().barrier();
  if (muster::rank() == 1) {
    const pid_t child = fork();
    if (child == 0) {
      for (;;)
        pause();
    }
    note("child", std::to_string(child));
  }
  reduce_for_ever(4);
}

void throw_in_flight() {
  std::vector<float> values(8'000'000, 1.0F);
  muster::Work work = muster::world().all_reduce_async(values);
  if (muster::rank() == 1) throw std::runtime_error("the program's own error");
  work.wait();
}

void become_another_program() {
  muster::world().barrier();
  note("waits");
  if (muster::rank() == 1) execlp("sleep", "sleep", "1000", nullptr);
  muster::world().barrier();
}

// As daemons do; then opens files, which get the numbers of what was open.
void close_all(std::vector<std::string>& paths) {
  for (int fd = 3; fd < 1024; ++fd)
    close(fd);
  for (int i = 0; i < 40; ++i) {
    paths.push_back(folder + "/own" + std::to_string(i));
    const int fd = open(paths.back().c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (write(fd, "mine", 4) != 4) std::abort();
  }
  const char* const record = std::getenv("MUSTER_RECORD_FD");
  if (record != nullptr && dup2(3, std::atoi(record)) < 0) std::abort();
}

void close_descriptors(const std::string& when) {
  const bool closes = own_rank() == 1;
  std::vector<std::string> paths;
  if (closes && when == "early") close_all(paths);
  muster::init_process_group();
  std::vector<float> values(1000, 1.0F);
  muster::world().all_reduce(values);
  if (closes && when != "early") close_all(paths);
  try {
    if (when == "amid") reduce_for_ever(4);
  } catch (const muster::DistributedError& error) {
    note_error(error);
  }
  muster::destroy_process_group();
  for (const std::string& path : paths) {
    std::string text;
    std::getline(std::ifstream(path), text);
    if (text != "mine") note("damage", path + " " + text);
  }
}

// ---- a training that can be resumed

uint64_t hash_of(const std::vector<double>& state) {
  uint64_t hash = 1469598103934665603U;
  for (const double value : state) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    hash = (hash ^ bits) * 1099511628211U;
  }
  return hash;
}

void train(int victim, int fatal_step) {
  constexpr int kSteps = 40;
  constexpr size_t kParameters = 200'000;
  const std::string path = folder + "/model";
  std::vector<double> state(kParameters, 1.0), gradient(kParameters);
  int step = 0;
  if (const auto saved = muster::load_checkpoint(path)) {
    std::memcpy(&step, saved->data(), sizeof step);
    std::memcpy(state.data(), saved->data() + sizeof step, state.size() * sizeof state[0]);
    note("resumes", std::to_string(step));
  }
  for (; step < kSteps; ++step) {
    if (step % 10 == 0) {
      std::string bytes(sizeof step + state.size() * sizeof state[0], '\0');
      std::memcpy(bytes.data(), &step, sizeof step);
      std::memcpy(bytes.data() + sizeof step, state.data(), state.size() * sizeof state[0]);
      muster::save_checkpoint(path, bytes);
    }
    for (size_t i = 0; i < kParameters; ++i)
      gradient[i] =
          state[i] * 0.01 * (muster::rank() + 1) + static_cast<double>(i % 7) / (step + 1);
    if (step == fatal_step && muster::rank() == victim && muster::restart_count() == 0) {
      std::thread([] {
        note("dies");
        kill(getpid(), SIGKILL);
      }).detach();
      for (;;)
        muster::world().all_reduce(gradient, muster::ReduceOp::average);
    }
    muster::world().all_reduce(gradient, muster::ReduceOp::average);
    for (size_t i = 0; i < kParameters; ++i)
      state[i] -= 0.1 * gradient[i];
  }
  note("trained", std::to_string(hash_of(state)));
}

void run(const std::vector<std::string>& words) {
  const std::string& mode = words[0];
  if (mode == "churn") return churn();
  if (mode == "close") return close_descriptors(words.at(1));
  muster::init_process_group();
  note("joined", std::to_string(getpid()));
  if (mode == "reduce") reduce_for_ever(std::stoul(words.at(1)));
  if (mode == "wait") wait_for_rank_1(words.at(1));
  if (mode == "abort") abort_from_a_thread();
  if (mode == "stall")
    reduce_for_ever(4, {.timeout = std::chrono::milliseconds(std::stol(words.at(1)))});
  if (mode == "leave") leave_rank_1();
  if (mode == "fork") fork_a_child();
  if (mode == "train") train(std::stoi(words.at(1)), std::stoi(words.at(2)));
  if (mode == "sleep") idle();
  if (mode == "throw") throw_in_flight();
  if (mode == "exec") become_another_program();
  muster::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  folder = argv[1];
  note("pid", std::to_string(getpid()));
  // Memory that the kernel has to free at the end.
  const std::vector<char> held(std::stoul(environment("HELD_MIB", "0")) << 20, '\1');
  try {
    run(std::vector<std::string>(argv + 2, argv + argc));
  } catch (const muster::DistributedError& error) {
    note_error(error);
    std::fprintf(stderr, "%s\n", error.what());
    return kExitOnError;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kExitOnOwnError;
  }
  return 0;
}
