#include "worker_lib/joining/contract_env.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "rendezvous/base/contract.h"
#include "rendezvous/base/text.h"
#include "worker_lib/joining/foreign_launcher.h"
#include "worker_lib/joining/job_secret.h"

namespace muster::worker {
namespace {

// Reads and checks MASTER_ADDR and MASTER_PORT; adds those not set to `missing`.
MeetAtAddress read_master(EnvReader& env, std::vector<std::string_view>& missing) {
  MeetAtAddress at;
  at.host = env.text(env::kMasterAddr).value_or("");
  if (!env.has(env::kMasterAddr)) {
    missing.push_back(env::kMasterAddr);
  } else if (at.host.empty()) {
    env.complain("MASTER_ADDR is empty: it must be the address or the name of rank 0's host");
  }
  if (!env.has(env::kMasterPort)) missing.push_back(env::kMasterPort);
  at.port = static_cast<uint16_t>(env.number(env::kMasterPort, 1, 65535).value_or(0));
  at.agent_serves = env.truth(env::kUseAgentStore).value_or(false);
  return at;
}

// Reads this rank's place on its node from options, the launcher's or the contract's variables.
void read_place(EnvReader& env, const TaskVariables* names, const InitOptions& options,
                Identity& self) {
  const auto read = [&](std::string_view theirs, std::string_view ours, int min) {
    std::optional<int> value;
    if (names != nullptr && !theirs.empty()) value = env.number(theirs, min);
    return value ? value : env.number(ours, min);
  };
  const TaskVariables none{};
  const TaskVariables& theirs = names != nullptr ? *names : none;
  const std::optional<int> local_rank = read(theirs.local_rank, env::kLocalRank, 0);
  self.local_rank = options.local_rank.value_or(local_rank.value_or(0));
  const std::optional<int> node_rank = read(theirs.node_rank, env::kGroupRank, 0);
  self.node_rank = node_rank.value_or(0);
  std::optional<int> local_size = read(theirs.local_size, env::kLocalWorldSize, 1);
  if (!local_size && names != nullptr && names->starter == TaskStarter::slurm) {
    local_size = slurm_local_size(env, self.node_rank);
    if (!local_size && is_on_one_node(env, theirs, self)) local_size = self.world_size;
  }
  self.local_world_size = local_size.value_or(1);
  self.place_told = {.local_rank = options.local_rank || local_rank,
                     .local_world_size = local_size.has_value(),
                     .node_rank = node_rank.has_value()};
  if (!local_size) return;
  const bool foreign = names != nullptr && !theirs.local_rank.empty() && !options.local_rank;
  env.demand_below(foreign ? theirs.local_rank : env::kLocalRank, self.local_rank,
                   theirs.local_size.empty() ? env::kLocalWorldSize : theirs.local_size,
                   self.local_world_size);
}

void check_contract(EnvReader& env, const Identity& self) {
  env.demand_below(env::kRank, self.rank, env::kWorldSize, self.world_size);
  if (self.local_world_size > self.world_size) {
    env.complain(fmt::format("LOCAL_WORLD_SIZE={} is more than WORLD_SIZE={}",
                             self.local_world_size, self.world_size));
  }
  if (const auto groups = env.number(env::kGroupWorldSize, 1))
    env.demand_below(env::kGroupRank, self.node_rank, env::kGroupWorldSize, *groups);
}

Outcome<Identity> finish_identity(const EnvReader& env, Identity self) {
  if (env.complaint()) return failed(ErrorCode::environment, *env.complaint());
  return self;
}

// Reads RANK, WORLD_SIZE and the rest, set by muster, torchrun or by hand.
Outcome<Identity> read_contract(EnvReader& env, const InitOptions& options) {
  Identity self;
  self.launcher = Launcher::contract;
  std::vector<std::string_view> missing;
  const auto number = [&](std::string_view name, std::optional<int> instead, int min) {
    if (!instead && !env.has(name)) missing.push_back(name);
    return instead ? *instead : env.number(name, min).value_or(min);
  };
  self.rank = number(env::kRank, options.rank, 0);
  self.world_size = number(env::kWorldSize, options.world_size, 1);
  const bool alone = missing.empty() && self.world_size == 1;
  MeetAtAddress at = read_master(env, missing);
  if (alone && missing.size() == 2) missing.clear();
  if (!missing.empty()) {
    env.complain(
        fmt::format("{} {} not set: with init_method env:// a rank needs RANK, WORLD_SIZE, "
                    "MASTER_ADDR and MASTER_PORT; start the program with muster, or set "
                    "all four",
                    listed(missing), missing.size() == 1 ? "is" : "are"));
  }
  read_place(env, nullptr, options, self);
  self.restart_count = env.number(env::kRestartCount, 0).value_or(0);
  self.run_id = env.text(env::kRunId).value_or("");
  self.secret = read_job_secret(env);
  check_contract(env, self);
  if (self.world_size > 1 || at.agent_serves) self.meeting_point = std::move(at);
  return finish_identity(env, std::move(self));
}

// A foreign launcher's ranks meet at MASTER_ADDR and MASTER_PORT, else, on one node, at a file.
void choose_foreign_meeting(EnvReader& env, const TaskVariables& names, Identity& self) {
  std::vector<std::string_view> missing;
  MeetAtAddress at = read_master(env, missing);
  at.agent_serves = false;
  if (missing.size() == 1) {
    env.complain(fmt::format(
        "{} is not set, but {} is: set both ({}), or, on one node, neither", missing.front(),
        missing.front() == env::kMasterAddr ? env::kMasterPort : env::kMasterAddr,
        how_to_set(names)));
  } else if (self.world_size == 1) {
    self.meeting_point = MeetNobody{};
  } else if (missing.empty()) {
    self.meeting_point = std::move(at);
  } else if (is_on_one_node(env, names, self)) {
    self.meeting_point = meeting_file_of(env, names.starter);
  } else {
    env.complain(fmt::format(
        "MASTER_ADDR and MASTER_PORT are not set, and {}: {}, HOST being the node of "
        "rank 0",
        self.place_told.local_world_size || names.starter == TaskStarter::slurm
            ? std::string("the ranks are on several nodes")
            : fmt::format("{} does not tell that the ranks are on one node", names.rank),
        how_to_set(names)));
  }
}

Outcome<Identity> read_foreign(EnvReader& env, const TaskVariables& names,
                               const InitOptions& options) {
  Identity self;
  self.launcher = launcher_of(names);
  const std::string_view size = size_variable(env, names);
  self.rank = options.rank.value_or(env.number(names.rank, 0).value_or(0));
  if (!options.world_size && !env.has(size))
    env.complain(fmt::format("{} is set but {} is not", names.rank, size));
  self.world_size = options.world_size.value_or(env.number(size, 1).value_or(1));
  read_place(env, &names, options, self);
  env.demand_below(names.rank, self.rank, size, self.world_size);
  self.secret = read_job_secret(env);
  if (!env.complaint()) choose_foreign_meeting(env, names, self);
  return finish_identity(env, std::move(self));
}

Outcome<Identity> read_environment(EnvReader& env, const InitOptions& options) {
  if (const TaskVariables* names = find_launcher(env)) return read_foreign(env, *names, options);
  const bool said =
      env.has(env::kRank) || env.has(env::kWorldSize) || options.rank || options.world_size;
  if (said) return read_contract(env, options);
  if (const auto unread = unread_launcher(env)) return failed(ErrorCode::environment, *unread);
  Identity alone;
  read_place(env, nullptr, options, alone);
  return finish_identity(env, std::move(alone));
}

// "tcp://host:port", "tcp://[fd00::1]:29500"
Outcome<MeetingPoint> parse_tcp(const std::string& method) {
  const std::string_view rest = std::string_view(method).substr(6);
  const size_t colon = rest.rfind(':');
  std::string_view host = rest.substr(0, std::min(colon, rest.size()));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::optional<int> port =
      colon == std::string_view::npos ? std::nullopt : plain_number(rest.substr(colon + 1));
  if (host.empty() || !port || *port < 1 || *port > 65535) {
    return failed(
        ErrorCode::invalid_argument,
        fmt::format("init_method {}: it must be tcp://HOST:PORT with a port from 1 to 65535",
                    method));
  }
  return MeetAtAddress{std::string(host), static_cast<uint16_t>(*port), false};
}

Outcome<MeetingPoint> parse_file(const std::string& method) {
  const std::string path = method.substr(7);
  if (!path.starts_with('/') || path.ends_with('/')) {
    return failed(ErrorCode::invalid_argument,
                  fmt::format("init_method {}: it must be file:///PATH with the absolute path of a "
                              "file that all ranks can access",
                              method));
  }
  return MeetAtFile{path, false};
}

Outcome<Identity> read_explicit(EnvReader& env, const InitOptions& options, MeetingPoint point) {
  if (!options.rank || !options.world_size) {
    return failed(ErrorCode::invalid_argument,
                  fmt::format("init_method {}: InitOptions::{} must be given", options.init_method,
                              options.rank         ? "world_size"
                              : options.world_size ? "rank"
                                                   : "rank and InitOptions::world_size"));
  }
  Identity self;
  self.rank = *options.rank;
  self.world_size = *options.world_size;
  self.restart_count = env.number(env::kRestartCount, 0).value_or(0);
  // The launcher's agent may already serve a store at that address.
  if (MeetAtAddress* const at = server_of(point)) {
    at->agent_serves = env.truth(env::kUseAgentStore).value_or(false) &&
                       env.text(env::kMasterAddr) == at->host &&
                       env.number(env::kMasterPort, 1, 65535) == int{at->port};
    // Elsewhere, ranks of several launchers may meet, which have different secrets.
    if (at->agent_serves) self.secret = read_job_secret(env);
  }
  self.meeting_point = std::move(point);
  read_place(env, nullptr, options, self);
  // GROUP_RANK counts nodes of the launcher's world: with a launcher on each host it is always 0.
  self.node_rank = 0;
  self.place_told.node_rank = false;
  return finish_identity(env, std::move(self));
}

std::optional<Failure> check_options(const InitOptions& options) {
  std::string wrong;
  if (options.rank && *options.rank < 0) {
    wrong = fmt::format("InitOptions::rank is {}: it must be 0 or more", *options.rank);
  } else if (options.world_size && *options.world_size < 1) {
    wrong = fmt::format("InitOptions::world_size is {}: it must be 1 or more", *options.world_size);
  } else if (options.rank && options.world_size && *options.rank >= *options.world_size) {
    wrong = fmt::format("InitOptions::rank {} is not below InitOptions::world_size {}",
                        *options.rank, *options.world_size);
  } else if (options.local_rank && *options.local_rank < 0) {
    wrong = fmt::format("InitOptions::local_rank is {}: it must be 0 or more", *options.local_rank);
  } else if (options.device && *options.device < 0) {
    wrong = fmt::format("InitOptions::device is {}: it must be 0 or more", *options.device);
  } else if (options.timeout <= std::chrono::milliseconds::zero()) {
    wrong = fmt::format("InitOptions::timeout is {} ms: it must be more than 0",
                        options.timeout.count());
  }
  if (wrong.empty()) return std::nullopt;
  return Failure{ErrorCode::invalid_argument, std::move(wrong)};
}

}  // namespace

Outcome<Identity> find_identity(const InitOptions& options, const MeetThroughStore& at,
                                const EnvironmentLookup& lookup) {
  EnvReader env(lookup);
  if (options.world_size == 1) return read_explicit(env, options, MeetNobody{});
  return read_explicit(env, options, at);
}

Outcome<Identity> find_identity(const InitOptions& options, const EnvironmentLookup& lookup) {
  if (std::optional<Failure> wrong = check_options(options)) return tl::unexpected(*wrong);
  EnvReader env(lookup);
  const std::string& method = options.init_method;
  if (method == "env://" || method.empty()) return read_environment(env, options);
  const bool tcp = method.starts_with("tcp://");
  if (!tcp && !method.starts_with("file://")) {
    return failed(
        ErrorCode::invalid_argument,
        fmt::format("init_method {}: choose env://, tcp://HOST:PORT or file:///PATH", method));
  }
  Outcome<MeetingPoint> point = tcp ? parse_tcp(method) : parse_file(method);
  if (!point) return tl::unexpected(point.error());
  return read_explicit(env, options, std::move(*point));
}

}  // namespace muster::worker
