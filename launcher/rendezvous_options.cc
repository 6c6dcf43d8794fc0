#include "launcher/rendezvous_options.h"

#include <strings.h>

#include "launcher/endpoint.h"
#include "launcher/option_table.h"
#include "rendezvous/backends/job_ports.h"

namespace muster {
namespace {

constexpr std::string_view kTokenVariable = env::kToken;
constexpr double kStaticTimeoutS = 900;
constexpr double kKeepAliveIntervalS = 5;
constexpr int kKeepAliveAttempts = 3;
constexpr double kPatientLeaseS = 15;
constexpr double kLeaseMinS = 0.1;  // A shorter lease makes a busy machine look lost.
constexpr int kSparesMax = 100000;
constexpr std::size_t kInterfaceNameMax = 15;  // IFNAMSIZ without its NUL.

void choose_own_store(RendezvousSpec& spec) {
  spec.backend = "c10d";
  spec.endpoint_host = "localhost";
  spec.endpoint_port = 0;
}

// Leaves the id empty, to be generated later, if it is given as empty, or not given to a job that
// is standalone.
void read_id(Settings& settings, RendezvousSpec& spec) {
  const std::optional<Setting> id = settings.find("rdzv-id");
  const bool made_up = spec.standalone || spec.single_node_default;
  spec.id = id ? id->value : made_up ? "" : "none";
  if (!id || !id->value.empty()) return;
  if (spec.nnodes_max > 1) {
    settings.refuse_value("rdzv-id",
                          "the job has no name, and one made up here would differ on every node; "
                          "give an ID");
  } else {
    settings.warn_of_value("rdzv-id", "the job has no name; muster makes one up");
  }
}

void read_endpoint(Settings& settings, RendezvousSpec& spec) {
  Endpoint endpoint;
  settings.read("rdzv-endpoint", endpoint, parse_endpoint);
  spec.endpoint_host = endpoint.host;
  spec.endpoint_port = endpoint.port;
}

void read_master(Settings& settings, RendezvousSpec& spec, int master_port) {
  Endpoint endpoint{"127.0.0.1", master_port};
  settings.read("master-addr", endpoint, [&](const std::string& address) {
    return parse_endpoint(fmt::format("{}:{}", trim(address), master_port));
  });
  spec.endpoint_host = endpoint.host;
  spec.endpoint_port = endpoint.port;
  if (spec.nnodes_max > 1 && !settings.find("master-addr")) {
    settings.warn(fmt::format(
        "no --master-addr given: 127.0.0.1:{} is used, which other machines cannot reach",
        master_port));
  }
}

// Ignores variables, which the cluster may set for other kinds of jobs.
void warn_of_unused_master(Settings& settings, std::string_view why) {
  for (const std::string_view name : {"master-addr", "master-port"}) {
    if (settings.on_command_line(name))
      settings.warn(fmt::format("{} has no effect {}", settings.shown_as(name), why));
  }
}

void read_static_endpoint(Settings& settings, RendezvousSpec& spec, int master_port) {
  if (!settings.non_blank("rdzv-endpoint")) return read_master(settings, spec, master_port);
  read_endpoint(settings, spec);
  warn_of_unused_master(settings, "beside --rdzv-endpoint");
  if (!settings.error() && !spec.endpoint_port) {
    settings.refuse_value("rdzv-endpoint", "the static backend needs a port; give HOST:PORT");
  }
}

void read_c10d_endpoint(Settings& settings, RendezvousSpec& spec) {
  read_endpoint(settings, spec);
  if (spec.endpoint_host.empty()) {
    // A single node without spares opens a port of its own, regardless of the endpoint.
    if (spec.nnodes_max > 1 || settings.given("spares")) {
      settings.warn(
          fmt::format("no --rdzv-endpoint given: localhost:{} is used, which other machines cannot "
                      "reach",
                      kC10dPort));
    }
    spec.endpoint_host = "localhost";
  }
  if (!spec.endpoint_port) spec.endpoint_port = kC10dPort;
}

void read_file_endpoint(Settings& settings, RendezvousSpec& spec) {
  const std::optional<std::string> typed = settings.non_blank("rdzv-endpoint");
  if (!typed) {
    settings.refuse(
        "--rdzv-backend file needs a file that all nodes can access; give --rdzv-endpoint /PATH");
    return;
  }
  spec.file_path = trim(*typed);
  if (!spec.file_path.starts_with('/')) {
    settings.refuse_value(
        "rdzv-endpoint",
        "the file backend needs an absolute path, the same on all nodes; give /PATH");
  }
}

void read_etcd_endpoint(Settings& settings, RendezvousSpec& spec) {
  Result<EtcdOptions> options = read_etcd_options(
      settings.non_blank("rdzv-endpoint").value_or(""), spec.conf,
      [&settings](std::string_view name) { return settings.variable(std::string(name)); });
  if (!options) return settings.refuse(options.error().message);
  spec.etcd = std::move(*options);
  if (settings.find("rdzv-id") || settings.error()) return;
  settings.warn(
      "no --rdzv-id given: all jobs without one are one job in etcd, 'none', and one that begins "
      "within 10 minutes of a success is over at once; give each an ID");
}

bool keeps_store_in_a_file(const RendezvousSpec& spec) {
  return strcasecmp(conf_value(spec.conf, "store_type").value_or("tcp").c_str(), "file") == 0;
}

// Maps torchrun's c10d with store_type=file to our file backend, or, for one node without a path,
// to a store of its own.
void take_store_type(Settings& settings, RendezvousSpec& spec) {
  if (spec.backend == "c10d" && keeps_store_in_a_file(spec)) {
    if (spec.nnodes_max == 1 && !settings.non_blank("rdzv-endpoint")) {
      choose_own_store(spec);
      return;
    }
    settings.warn_of_value("rdzv-conf", "store_type=file means --rdzv-backend file");
    spec.backend = "file";
  } else if (spec.backend == "file" && conf_value(spec.conf, "store_type") &&
             !keeps_store_in_a_file(spec)) {
    settings.refuse_value("rdzv-conf",
                          "store_type contradicts --rdzv-backend file; leave one of them out");
  }
}

void read_backend(Settings& settings, RendezvousSpec& spec) {
  settings.read("rdzv-backend", spec.backend, [](const std::string& text) -> Parsed<std::string> {
    // torchrun's etcd and etcd-v2 use etcd's API version 2, which etcd has dropped: both are ours.
    if (text == "etcd-v2") return std::string("etcd");
    return parse_choice(text, words_to_type(option_row("rdzv-backend")));
  });
}

void warn_of_ignored_flags(Settings& settings) {
  for (const std::string_view name :
       {"rdzv-endpoint", "rdzv-backend", "master-addr", "master-port"}) {
    const std::optional<Setting> setting = settings.find(name);
    if (setting && setting->from_command_line && setting->value != "c10d") {
      settings.warn(
          fmt::format("{} is ignored: --standalone meets on a port of its own", setting->shown));
    }
  }
}

void choose_standalone(Settings& settings, RendezvousSpec& spec) {
  choose_own_store(spec);
  warn_of_ignored_flags(settings);
  if (spec.nnodes_max == 1) return;
  const std::string nnodes = settings.shown_as("nnodes");
  if (spec.nnodes_min > 1) {
    settings.refuse(nnodes + " contradicts --standalone, which is one node; leave out one of them");
    return;
  }
  settings.warn(nnodes + " counts as 1: --standalone is one node");
  spec.nnodes_max = 1;
}

// torchrun's static rendezvous waits for exactly MAX nodes.
void fix_static_size(Settings& settings, RendezvousSpec& spec) {
  if (spec.nnodes_min == spec.nnodes_max) return;
  settings.warn_of_value(
      "nnodes", fmt::format("the static backend waits for all {} nodes; give --rdzv-backend c10d "
                            "for a number that may change",
                            spec.nnodes_max));
  spec.nnodes_min = spec.nnodes_max;
}

void choose_single_node_default(Settings& settings, RendezvousSpec& spec) {
  spec.single_node_default = true;
  choose_own_store(spec);
  settings.warn_without_effect("master-addr",
                               "without --master-port: the workers of one node meet at 127.0.0.1, "
                               "or at --local-addr");
}

// Always uses the elastic c10d backend; reads --rdzv-backend only to check it.
void meet_by_facts(Settings& settings, RendezvousSpec& spec, const EngineFacts& engine) {
  read_backend(settings, spec);
  spec.backend = "c10d";
  spec.id = settings.text("rdzv-id", engine.job_id);
  spec.engine_id = engine.job_id;
  spec.endpoint_host = engine.host;
  spec.ask_pmi = engine.ask_pmi;
  if (spec.ask_pmi) return;
  if (engine.port) {
    spec.ports_of_node_0 = {static_cast<uint16_t>(*engine.port)};
  } else {
    const auto ports = ports_of_job(spec.engine_id);
    spec.ports_of_node_0.assign(ports.begin(), ports.end());
  }
  spec.endpoint_port = spec.ports_of_node_0.front();
}

void choose_mode(Settings& settings, RendezvousSpec& spec, std::optional<int> master_port) {
  if (spec.standalone) return choose_standalone(settings, spec);
  read_backend(settings, spec);
  take_store_type(settings, spec);
  if (spec.backend == "static" && !settings.non_blank("rdzv-endpoint") && !master_port &&
      spec.nnodes_max == 1) {
    return choose_single_node_default(settings, spec);
  }
  if (spec.backend == "static") {
    fix_static_size(settings, spec);
    return read_static_endpoint(settings, spec, master_port.value_or(kStaticPort));
  }
  warn_of_unused_master(settings, fmt::format("with --rdzv-backend {}", spec.backend));
  if (spec.backend == "file") {
    read_file_endpoint(settings, spec);
  } else if (spec.backend == "etcd") {
    read_etcd_endpoint(settings, spec);
  } else if (!keeps_store_in_a_file(spec)) {
    read_c10d_endpoint(settings, spec);
  }
}

// Refuses port 0 if other nodes need it: the system picks a port that only this machine knows.
void check_port(Settings& settings, const RendezvousSpec& spec) {
  const bool elastic_from_one = spec.backend == "c10d" && spec.nnodes_min == 1;
  if (settings.error() || spec.nnodes_max == 1 || elastic_from_one || spec.endpoint_port != 0)
    return;
  settings.refuse_value(
      settings.non_blank("rdzv-endpoint") ? "rdzv-endpoint" : "master-port",
      "port 0 is a port that the other nodes cannot know; give the same free port on all nodes");
}

// torchrun defaults to rank 0 for static and ignores --node-rank in other backends; we honour it if
// possible and warn if not.
void check_node_rank(Settings& settings, RendezvousSpec& spec) {
  const bool is_static = spec.backend == "static";
  if (is_static && !spec.node_rank) spec.node_rank = 0;
  const int places = spec.nnodes_max + spec.spares;
  if (!spec.node_rank || *spec.node_rank < places) return;
  if (is_static) {
    settings.refuse_value(
        "node-rank",
        fmt::format("out of range; give a rank below the number of nodes, {}", spec.nnodes_max));
    return;
  }
  const std::string rank = settings.shown_as("node-rank");
  settings.warn(places == 1
                    ? fmt::format("{} is ignored: there is one node, whose rank is 0", rank)
                    : fmt::format("{} is ignored: there are at most {} nodes, spares included",
                                  rank, places));
  spec.node_rank.reset();
}

// REQUIRES: the configuration has been checked.
void take_seconds(const RendezvousSpec& spec, std::string_view key, double& target) {
  const std::optional<std::string> value = conf_value(spec.conf, key);
  if (!value) return;
  const Parsed<int> whole = parse_int(*value, 0);  // Also as Python writes numbers: 1_000.
  target = whole ? *whole : *parse_number(*value);
}

void take_conf(RendezvousSpec& spec) {
  RendezvousTimes& times = spec.times;
  if (spec.backend == "static") {
    times.join_timeout_s = kStaticTimeoutS;
    take_seconds(spec, "timeout", times.join_timeout_s);
    return;
  }
  if (spec.backend == "etcd") take_seconds(spec, "timeout", times.join_timeout_s);
  take_seconds(spec, "join_timeout", times.join_timeout_s);
  take_seconds(spec, "last_call_timeout", times.last_call_s);
  if (conf_value(spec.conf, "read_timeout")) {
    take_seconds(spec, "read_timeout", times.reach_timeout_s.emplace());
  }
  if (conf_value(spec.conf, "keep_alive_interval") ||
      conf_value(spec.conf, "keep_alive_max_attempt")) {
    double interval = kKeepAliveIntervalS;
    double attempts = kKeepAliveAttempts;
    take_seconds(spec, "keep_alive_interval", interval);
    take_seconds(spec, "keep_alive_max_attempt", attempts);
    times.lease_s = interval * attempts;
  }
  // A job that meets on a port of its own has no other host.
  if (spec.backend != "c10d" || spec.standalone || spec.single_node_default) return;
  if (const auto host = conf_value(spec.conf, "is_host")) spec.is_host = truth_of(*host);
}

// Does not warn of keys without effect for a single node, which waits for no other.
void read_conf(Settings& settings, RendezvousSpec& spec) {
  if (spec.conf.empty()) return;
  if (const auto fine = check_rendezvous_conf(spec.backend, spec.conf); !fine)
    return settings.refuse_value("rdzv-conf", fine.error());
  for (const std::string& phrase : unknown_conf_keys(spec.conf))
    settings.warn_of_value("rdzv-conf", phrase);
  if (spec.nnodes_max == 1) return;
  for (const std::string& phrase : conf_keys_without_effect(spec.backend, spec.conf))
    settings.warn_of_value("rdzv-conf", phrase);
}

Parsed<double> parse_lease(const std::string& text) {
  const Parsed<double> seconds = parse_seconds(text, false);
  if (seconds && *seconds < kLeaseMinS) {
    return problem("out of range; give at least 0.1 seconds, or a busy node looks like a lost one");
  }
  return seconds;
}

void read_times(Settings& settings, RendezvousSpec& spec) {
  if (!settings.error()) take_conf(spec);
  settings.read("start-timeout", spec.times.join_timeout_s, seconds_above_0);
  if (settings.given("start-timeout")) spec.times.reach_timeout_s.reset();
  settings.read("lease", spec.times.lease_s, parse_lease);
}

// Chooses a longer lease if no node can be replaced or spared: detecting its loss early then only
// ends the job early.
void choose_lease(Settings& settings, RendezvousSpec& spec) {
  const bool is_fixed = spec.nnodes_min == spec.nnodes_max && spec.nnodes_max > 1;
  const bool is_chosen = settings.given("lease") || conf_value(spec.conf, "keep_alive_interval") ||
                         conf_value(spec.conf, "keep_alive_max_attempt");
  if (is_fixed && spec.spares == 0 && !is_chosen) spec.times.lease_s = kPatientLeaseS;
}

void read_elasticity(Settings& settings, RendezvousSpec& spec) {
  settings.read("spares", spec.spares, int_from(0, kSparesMax));
  settings.read("max-membership-changes", spec.max_membership_changes, int_from(0));
  if (spec.spares == 0) return;
  if (spec.standalone || spec.single_node_default) {
    settings.refuse_value(
        "spares",
        "no other node can join a job that meets on a port of its own; give --rdzv-backend c10d");
  } else if (spec.backend == "static") {
    settings.refuse_value(
        "spares",
        "the static backend has a fixed number of nodes and no spares; give --rdzv-backend c10d");
  }
}

Parsed<std::string> parse_interface(const std::string& text) {
  if (text.empty() || text.size() > kInterfaceNameMax || text == "." || text == ".." ||
      text.find_first_of("/: \t\n,=^") != std::string::npos) {
    return problem("no interface can have that name; `ip link` lists the names");
  }
  return text;
}

// Parses units as Slurm does, as powers of 1,024.
Parsed<size_t> parse_store_limit(const std::string& text) {
  constexpr std::string_view kUnits = "KMGT";
  constexpr size_t kLeast = size_t{1} << 20;
  std::string_view rest = text;
  const std::optional<size_t> number = take_number<size_t>(rest);
  const size_t unit = rest.size() == 1 ? kUnits.find(rest.front()) : std::string_view::npos;
  const bool has_unit = unit != std::string_view::npos;
  const size_t shift = has_unit ? 10 * (unit + 1) : 0;
  if (!number || (!rest.empty() && !has_unit) || *number > (SIZE_MAX >> 1 >> shift))
    return problem("not a size; give for example 512M, 4G or a number of bytes");
  if (const size_t bytes = *number << shift; bytes >= kLeast) return bytes;
  return problem("too small; give at least 1M: PyTorch itself keeps addresses of all ranks there");
}

void read_network(Settings& settings, RendezvousSpec& spec) {
  settings.read("iface", spec.iface, parse_interface);
  spec.export_iface = !settings.on("no-iface-env");
  settings.read("worker-port", spec.worker_port, int_from(1, 65535));
  if (spec.worker_port && spec.worker_port == spec.endpoint_port) {
    settings.refuse_value("worker-port",
                          "that is the port where the nodes meet, which serves the workers as "
                          "well; leave it out or give another port");
  }
  const std::optional<Setting> allow = settings.find("store-allow");
  spec.store_allow_any = allow && trim(allow->value) == "any";
  if (!spec.store_allow_any) settings.read("store-allow", spec.store_allow, parse_networks);
  settings.read("store-limit", spec.store_bytes_max, parse_store_limit);
}

// Never shows the token in a message.
void take_token_settings(Settings& settings, RendezvousSpec& spec) {
  const std::optional<std::string> token = settings.variable(kTokenVariable);
  if (const std::optional<Setting> file = settings.find("rdzv-token-file")) {
    spec.token_file = file->value;
    if (file->value.empty()) {
      settings.refuse_value("rdzv-token-file", "no file is given; give its PATH");
    }
    if (token) settings.warn(fmt::format("{} is ignored: {} wins", kTokenVariable, file->shown));
  } else if (token && trim(*token).empty()) {
    settings.refuse(
        fmt::format("{} is set and empty; unset it or give the job's secret", kTokenVariable));
  } else {
    spec.token = token;
  }
}

}  // namespace

RendezvousSpec read_rendezvous(Settings& settings, const EngineFacts* engine) {
  RendezvousSpec spec;
  NodeRange nodes;
  settings.read("nnodes", nodes, parse_node_range);
  spec.nnodes_min = nodes.min;
  spec.nnodes_max = nodes.max;
  settings.read("node-rank", spec.node_rank, int_from(0));
  settings.read("rdzv-conf", spec.conf, parse_rendezvous_conf);
  std::optional<int> master_port;
  settings.read("master-port", master_port, int_from(0, 65535));
  spec.local_addr = settings.non_blank("local-addr");
  spec.standalone = settings.on("standalone");
  if (engine != nullptr) {
    meet_by_facts(settings, spec, *engine);
  } else {
    choose_mode(settings, spec, master_port);
    read_id(settings, spec);
  }
  read_conf(settings, spec);
  read_times(settings, spec);
  read_elasticity(settings, spec);
  choose_lease(settings, spec);
  check_node_rank(settings, spec);
  check_port(settings, spec);
  read_network(settings, spec);
  take_token_settings(settings, spec);
  return spec;
}

}  // namespace muster
