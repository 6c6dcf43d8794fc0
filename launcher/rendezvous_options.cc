#include "launcher/rendezvous_options.h"

#include <array>

#include <strings.h>

#include "launcher/endpoint.h"

namespace muster {
namespace {

constexpr std::array<std::string_view, 4> kBackends{"static", "c10d", "etcd", "etcd-v2"};
constexpr int kC10dPort = 29400;
constexpr int kStaticPort = 29500;

std::optional<std::string> non_empty(const std::optional<Setting>& setting) {
  if (!setting || trim(setting->value).empty()) return std::nullopt;
  return setting->value;
}

void choose_own_store(RendezvousSpec& spec) {
  spec.backend = "c10d";
  spec.endpoint_host = "localhost";
  spec.endpoint_port = 0;
}

// An empty id is made up later; in mode 1 and 2 so is one that was not given.
void read_id(Settings& settings, RendezvousSpec& spec) {
  const std::optional<Setting> id = settings.find("rdzv-id");
  const bool made_up = spec.standalone || spec.single_node_default;
  spec.id = id ? id->value : made_up ? "" : "none";
  if (id && id->value.empty()) {
    settings.warn(fmt::format("{}: the job has no name; muster makes one up", id->shown));
  }
}

void read_endpoint(Settings& settings, RendezvousSpec& spec) {
  Endpoint endpoint;
  settings.read("rdzv-endpoint", endpoint, parse_endpoint);
  spec.endpoint_host = endpoint.host;
  spec.endpoint_port = endpoint.port;
}

// --master-addr joined with the port is an endpoint and obeys its grammar.
void read_static_endpoint(Settings& settings, RendezvousSpec& spec, int master_port) {
  if (non_empty(settings.find("rdzv-endpoint"))) {
    read_endpoint(settings, spec);
    if (!settings.error() && !spec.endpoint_port) {
      settings.refuse(fmt::format("{}: the static backend needs a port; give HOST:PORT",
                                  settings.find("rdzv-endpoint")->shown));
    }
    return;
  }
  Endpoint endpoint{"127.0.0.1", master_port};
  settings.read("master-addr", endpoint, [&](const std::string& address) {
    return parse_endpoint(fmt::format("{}:{}", trim(address), master_port));
  });
  spec.endpoint_host = endpoint.host;
  spec.endpoint_port = endpoint.port;
}

void read_c10d_endpoint(Settings& settings, RendezvousSpec& spec) {
  read_endpoint(settings, spec);
  if (spec.endpoint_host.empty()) {
    settings.warn("--rdzv-backend c10d without --rdzv-endpoint: localhost:29400 is taken");
    spec.endpoint_host = "localhost";
  }
  if (!spec.endpoint_port) spec.endpoint_port = kC10dPort;
}

bool keeps_store_in_a_file(const RendezvousSpec& spec) {
  return strcasecmp(conf_value(spec.conf, "store_type").value_or("tcp").c_str(), "file") == 0;
}

void refuse_what_one_machine_cannot_serve(Settings& settings, const RendezvousSpec& spec) {
  constexpr std::string_view kServes = "this build of muster serves one machine";
  if (spec.nnodes_max > 1) {
    settings.refuse(fmt::format("{} asks for more than one node; {}, so give --nnodes 1",
                                settings.find("nnodes")->shown, kServes));
  } else if (spec.backend == "etcd" || spec.backend == "etcd-v2") {
    settings.refuse(fmt::format("{}: {} and has no etcd client; give --rdzv-backend c10d",
                                settings.find("rdzv-backend")->shown, kServes));
  } else if (spec.backend == "c10d" && keeps_store_in_a_file(spec)) {
    settings.refuse(fmt::format("{}: {} and keeps no store in a file; leave out store_type",
                                settings.find("rdzv-conf")->shown, kServes));
  }
}

// One node has rank 0. torchrun ignores the rank outside of real static mode; so do we, aloud.
void check_node_rank(Settings& settings, RendezvousSpec& spec) {
  if (spec.node_rank < spec.nnodes_max) return;
  const std::string shown = settings.find("node-rank")->shown;
  if (spec.backend == "static") {
    settings.refuse(fmt::format("{}: out of range; give a rank below the number of nodes, {}",
                                shown, spec.nnodes_max));
  } else if (spec.nnodes_max == 1) {
    settings.warn(fmt::format("{} is ignored: there is one node, whose rank is 0", shown));
    spec.node_rank = 0;
  }
}

void warn_of_ignored_flags(Settings& settings) {
  for (const std::string_view name : {"rdzv-endpoint", "rdzv-backend"}) {
    const std::optional<Setting> setting = settings.find(name);
    if (setting && setting->from_command_line && setting->value != "c10d") {
      settings.warn(
          fmt::format("{} is ignored: --standalone meets on a port of its own", setting->shown));
    }
  }
}

void read_backend(Settings& settings, RendezvousSpec& spec) {
  settings.read("rdzv-backend", spec.backend,
                [](const std::string& text) { return parse_choice(text, kBackends); });
}

void choose_mode(Settings& settings, RendezvousSpec& spec, std::optional<int> master_port) {
  if (spec.standalone) {
    choose_own_store(spec);
    warn_of_ignored_flags(settings);
    return;
  }
  read_backend(settings, spec);
  if (spec.backend == "static" && !non_empty(settings.find("rdzv-endpoint")) && !master_port &&
      spec.nnodes_max == 1) {
    spec.single_node_default = true;
    choose_own_store(spec);
  } else if (spec.backend == "static") {
    read_static_endpoint(settings, spec, master_port.value_or(kStaticPort));
  } else if (spec.backend == "c10d" && !keeps_store_in_a_file(spec)) {
    read_c10d_endpoint(settings, spec);
  }
}

}  // namespace

RendezvousSpec read_rendezvous(Settings& settings) {
  RendezvousSpec spec;
  NodeRange nodes;
  settings.read("nnodes", nodes, parse_node_range);
  spec.nnodes_min = nodes.min;
  spec.nnodes_max = nodes.max;
  settings.read("node-rank", spec.node_rank, [](const auto& text) { return parse_int(text, 0); });
  settings.read("rdzv-conf", spec.conf, parse_rendezvous_conf);
  std::optional<int> master_port;
  settings.read("master-port", master_port,
                [](const auto& text) { return parse_int(text, 0, 65535); });
  if (const auto address = non_empty(settings.find("local-addr"))) spec.local_addr = address;
  spec.standalone = settings.on("standalone");
  choose_mode(settings, spec, master_port);
  read_id(settings, spec);
  if (const auto fine = check_rendezvous_conf(spec.backend, spec.conf); !fine) {
    settings.refuse(fmt::format("{}: {}", settings.find("rdzv-conf")->shown, fine.error()));
  }
  check_node_rank(settings, spec);
  if (!settings.error()) refuse_what_one_machine_cannot_serve(settings, spec);
  return spec;
}

}  // namespace muster
