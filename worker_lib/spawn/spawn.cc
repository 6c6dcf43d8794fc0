#include "worker_lib/spawn/spawn.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include "rendezvous/base/contract.h"
#include "rendezvous/base/hex.h"
#include "rendezvous/base/text.h"
#include "worker_lib/c_abi/c_abi.h"
#include "worker_lib/fields.h"
#include "worker_lib/fork_guard.h"
#include "worker_lib/joining/host_store.h"
#include "worker_lib/joining/job_secret.h"
#include "worker_lib/raise.h"
#include "worker_lib/recorder/call_site.h"

namespace muster {
namespace worker {
namespace {

constexpr const char* kSpawnCall = "spawn";
constexpr auto kSpawnStorePatience = std::chrono::seconds{1};

// Variables that describe a process of another launcher, not a rank of spawn().
constexpr std::array kLaunchersOwn{
    env::kRoleName,     env::kRoleRank,       env::kRoleWorldSize, env::kRunId,
    env::kErrorFile,    env::kMaxRestarts,    env::kTimerFile,     env::kSignalsToHandle,
    env::kRestartCount, env::kGroupWorldSize, env::kRecordFd,
};

bool is_launchers_own(std::string_view entry) {
  const std::string_view name = entry.substr(0, entry.find('='));
  return std::find(kLaunchersOwn.begin(), kLaunchersOwn.end(), name) != kLaunchersOwn.end();
}

void set_variable(std::vector<std::string>& environment, std::string_view name,
                  std::string_view value) {
  std::erase_if(environment, [&](const std::string& entry) {
    return entry.starts_with(name) && entry.size() > name.size() && entry[name.size()] == '=';
  });
  environment.push_back(fmt::format("{}={}", name, value));
}

std::vector<std::string> own_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    entries.emplace_back(*entry);
  return entries;
}

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::vector<std::string> arguments;
  for (const std::string_view argument : split(text, '\0'))
    arguments.emplace_back(argument);
  if (arguments.back().empty()) arguments.pop_back();  // A zero byte ends the last one.
  return arguments;
}

std::vector<std::string> rank_arguments(const SpawnOptions& options) {
  std::vector<std::string> arguments = own_arguments();
  if (!options.arguments) return arguments;
  arguments.resize(1);
  arguments.insert(arguments.end(), options.arguments->begin(), options.arguments->end());
  return arguments;
}

std::string call_name(const SpawnOptions& options) {
  static std::atomic<int> calls = 0;
  const int call = ++calls;
  return options.name.empty() ? fmt::format("#{}", call) : options.name;
}

// Returns the mark in the environment, which programs started by a rank inherit.
std::optional<SpawnMark> find_mark() {
  const char* text = std::getenv(kSpawnVariable);
  return text != nullptr ? SpawnMark::decode(text) : std::nullopt;
}

bool is_own(const SpawnMark& mark) {
  return life_of_process(getppid()) == mark.parent;
}

// Returns this process's own mark. Ends the process if the parent that set the mark is gone.
std::optional<SpawnMark> own_mark() {
  const std::optional<SpawnMark> found = find_mark();
  if (!found || is_own(*found)) return found;
  if (!may_still_live(found->parent)) _exit(127);
  return std::nullopt;
}

constexpr int kLostExitCode = 1;

// Exit handler that reports, and turns into a failure, an exit with code 0 before the call that the
// rank was started for: its parent would take that for success. be_a_rank() unsets the variable.
class AwaitedExit {
 public:
  AwaitedExit() {
    const std::optional<SpawnMark> found = find_mark();
    if (!found || !is_own(*found)) return;
    process_ = getpid();
    on_exit(end_as_lost, nullptr);
  }

 private:
  static void end_as_lost(int status, void*) {
    if (status != 0 || process_ != getpid() || std::getenv(kSpawnVariable) == nullptr) return;
    std::cout.flush();
    std::fprintf(stderr,
                 "muster: this rank ended without reaching the call of spawn() that it was started "
                 "for: main() must reach that call in ranks as well\n");
    std::fflush(nullptr);
    _exit(kLostExitCode);
  }

  static inline pid_t process_ = 0;
};

const AwaitedExit awaited;

[[noreturn]] void be_a_rank(RankFunction function, void* context) {
  const char* rank = std::getenv(std::string(env::kRank).c_str());
  unsetenv(kSpawnVariable);
  const CalledBack program;
  std::exit(function(context, rank != nullptr ? std::atoi(rank) : 0));
}

[[noreturn]] void throw_spawn_failure(Failure failure) {
  failure.message.insert(0, std::string(kSpawnCall) + ": ");
  raise(failure, kSpawnCall, {});
}

Outcome<SpawnResult> start_and_wait(int nprocs, const SpawnOptions& options,
                                    const std::string& call) {
  Outcome<std::shared_ptr<HostStore>> store = HostStore::serve({{IpAddress::loopback_v4(), 0}});
  if (!store) return tl::unexpected(store.error());
  const SpawnMark mark{call, life_of_process(getpid())};
  const SpawnMeeting meeting{(*store)->port(), random_job_secret()};
  const std::vector<std::string> inherited = own_environment();
  const std::vector<std::string> arguments = rank_arguments(options);
  RankKeeper keeper(options);
  for (int rank = 0; rank < nprocs; ++rank) {
    Outcome<StartedRank> started = start_rank(
        arguments, rank_environment(inherited, rank, nprocs, meeting, mark, options.environment));
    if (!started) return tl::unexpected(started.error());
    keeper.add(std::move(*started));
  }
  return keeper.wait([&](const SpawnResult& result) {
    // Gives the other ranks the reason why they are stopped.
    Outcome<StoreClient> client = (*store)->connect(kSpawnStorePatience);
    if (!client) return;
    client->set(kFailureNoticeKey, fmt::format("{}\n{}", result.message(), result.failed->value));
  });
}

}  // namespace

std::string SpawnMark::encode() const {
  return encode_fields({call, parent.to_string()});
}

std::optional<SpawnMark> SpawnMark::decode(const std::string& text) {
  const std::optional<std::vector<std::string>> fields = decode_fields(text);
  if (!fields || fields->size() != 2) return std::nullopt;
  const std::optional<ProcessLife> parent = ProcessLife::parse((*fields)[1]);
  return parent ? std::optional(SpawnMark{(*fields)[0], *parent}) : std::nullopt;
}

std::vector<std::string> rank_environment(const std::vector<std::string>& inherited, int rank,
                                          int nprocs, const SpawnMeeting& meeting,
                                          const SpawnMark& mark, const EnvironmentPairs& added) {
  std::vector<std::string> environment = inherited;
  std::erase_if(environment, is_launchers_own);
  const std::string of_rank = std::to_string(rank);
  const std::string of_world = std::to_string(nprocs);
  set_variable(environment, env::kRank, of_rank);
  set_variable(environment, env::kLocalRank, of_rank);
  set_variable(environment, env::kWorldSize, of_world);
  set_variable(environment, env::kLocalWorldSize, of_world);
  set_variable(environment, env::kGroupRank, "0");
  set_variable(environment, env::kMasterAddr, "127.0.0.1");
  set_variable(environment, env::kMasterPort, std::to_string(meeting.store_port));
  set_variable(environment, env::kUseAgentStore, "True");
  set_variable(environment, env::kWorkerSecret, to_hex(meeting.secret));
  for (const auto& [name, value] : added)
    set_variable(environment, name, value);
  set_variable(environment, kSpawnVariable, mark.encode());
  return environment;
}

}  // namespace worker
}  // namespace muster

using namespace muster;

namespace {

std::vector<std::string> strings_of(const char* const* list) {
  std::vector<std::string> strings;
  for (; *list != nullptr; ++list)
    strings.emplace_back(*list);
  return strings;
}

SpawnOptions spawn_options_of(const muster_spawn_options& given) {
  SpawnOptions options;
  if (given.name != nullptr) options.name = given.name;
  if (given.environment != nullptr) {
    for (const std::string& entry : strings_of(given.environment)) {
      const size_t end = entry.find('=');
      if (end == std::string::npos)
        c_abi::refuse(fmt::format("environment has {:?}, which is not NAME=value", entry));
      options.environment.emplace_back(entry.substr(0, end), entry.substr(end + 1));
    }
  }
  if (given.arguments != nullptr) options.arguments = strings_of(given.arguments);
  options.stop_timeout = std::chrono::milliseconds(given.stop_timeout_ms);
  if (given.timeout_ms >= 0) options.timeout = std::chrono::milliseconds(given.timeout_ms);
  return options;
}

SpawnResult start_ranks(int nprocs, worker::RankFunction function, void* context,
                        const SpawnOptions& options) {
  if (worker::in_forked_child()) worker::throw_spawn_failure(worker::forked_failure());
  const std::string call = worker::call_name(options);
  if (const std::optional<worker::SpawnMark> mark = worker::own_mark()) {
    if (mark->call == call) worker::be_a_rank(function, context);
    return {};
  }
  if (nprocs < 1) {
    worker::throw_spawn_failure({ErrorCode::invalid_argument,
                                 fmt::format("{} ranks were requested: the minimum is 1", nprocs)});
  }
  worker::arm_fork_guard();
  worker::Outcome<SpawnResult> result = worker::start_and_wait(nprocs, options, call);
  if (!result) worker::throw_spawn_failure(result.error());
  return std::move(*result);
}

}  // namespace

muster_status muster_spawn(int nprocs, int (*function)(void* context, int rank), void* context,
                           const muster_spawn_options* options, muster_rank_exit* ranks,
                           int* failed) {
  return c_abi::guarded(__func__, [&] {
    const muster_spawn_options initial MUSTER_SPAWN_OPTIONS;
    c_abi::require(reinterpret_cast<const void*>(function), "function");
    c_abi::require_out(ranks, "ranks");
    c_abi::require_out(failed, "failed");
    const SpawnResult result =
        start_ranks(nprocs, function, context,
                    spawn_options_of(c_abi::options_or(options, initial, "muster_spawn_options")));
    if (result.skipped()) std::fill_n(ranks, nprocs, muster_rank_exit{});
    for (const RankExit& exit : result.ranks)
      *ranks++ = {exit.pid, exit.code, exit.signal, exit.stopped ? 1 : 0};
    *failed = result.failed ? result.failed->value : -1;
  });
}
