#include "agent/job/rendezvous_options.h"

#include "rendezvous/backends/job_ports.h"
#include "rendezvous/base/hex.h"
#include "rendezvous/base/mac.h"
#include "rendezvous/base/machine.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

// A digest, since the arguments themselves may hold secrets.
std::string digest_of(const std::vector<std::string>& args) {
  std::string all;
  for (const std::string& arg : args)
    all += arg + '\0';
  return to_hex(raw_bytes(mac_of("", {"muster arguments 1", all})));
}

// "train.py", "-m jobs.train"; "sh -c" if the program is one of its arguments.
std::string program_to_tell(const LaunchSpec& spec) {
  if (spec.mode == RunMode::module) return "-m " + spec.program;
  const std::string base = spec.program.substr(spec.program.find_last_of('/') + 1);
  const bool takes_text =
      is_one_of(base, {"sh", "bash", "dash", "zsh", "ksh"}) || base.starts_with("python");
  const bool is_text = takes_text && spec.args.size() > 1 && spec.args[0].starts_with('-') &&
                       spec.args[0].ends_with('c');
  return is_text ? base + " -c" : base;
}

membership::Join own_join(const LaunchSpec& spec, const NodeFacts& node) {
  const RendezvousSpec& rendezvous = spec.rendezvous;
  membership::Join join;
  join.host_name = node.host_name;
  join.machine = machine_identity();
  join.node_rank = rendezvous.node_rank;
  join.slots = node.workers;
  join.role = spec.role;
  join.program = program_to_tell(spec);
  join.arguments = digest_of(spec.args);
  join.nodes_min = rendezvous.nnodes_min;
  join.nodes_max = rendezvous.nnodes_max;
  join.spares = rendezvous.spares;
  join.max_restarts = spec.max_restarts;
  join.max_membership_changes = rendezvous.max_membership_changes;
  join.last_call = from_seconds(rendezvous.times.last_call_s);
  join.join_timeout = from_seconds(rendezvous.times.join_timeout_s);
  join.lease = from_seconds(rendezvous.times.lease_s);
  return join;
}

}  // namespace

bool is_coordinated(const RendezvousSpec& spec) {
  return spec.nnodes_max > 1 || spec.spares > 0 || spec.backend == "file" || spec.etcd;
}

RendezvousOptions rendezvous_options(const LaunchSpec& spec, const NodeFacts& node) {
  const RendezvousSpec& rendezvous = spec.rendezvous;
  const bool is_static = rendezvous.backend == "static";
  RendezvousOptions options;
  options.job_id = node.run_id;
  options.worker_port = rendezvous.worker_port;
  options.local_addr = rendezvous.local_addr;
  options.interface = rendezvous.iface.value_or("");
  options.token = node.token;
  options.clients.allow = rendezvous.store_allow;
  options.clients.allow_any = rendezvous.store_allow_any;
  options.store_bytes_max = rendezvous.store_bytes_max;
  options.join = own_join(spec, node);
  options.reach_timeout =
      from_seconds(rendezvous.times.reach_timeout_s.value_or(rendezvous.times.join_timeout_s));
  options.fixed_master_addr = is_static;
  if (!is_coordinated(rendezvous)) {
    options.way = RendezvousOptions::Way::solo;
    options.host = is_static ? rendezvous.endpoint_host : rendezvous.local_addr.value_or("");
    options.port = is_static ? rendezvous.endpoint_port.value_or(0) : 0;
    return options;
  }
  if (rendezvous.backend == "file") {
    options.way = RendezvousOptions::Way::file;
    options.host = rendezvous.file_path;
    return options;
  }
  if (rendezvous.etcd) {
    options.way = RendezvousOptions::Way::etcd;
    options.etcd = rendezvous.etcd;
    return options;
  }
  options.way = RendezvousOptions::Way::endpoint;
  options.host = rendezvous.endpoint_host;
  if (!rendezvous.ports_of_node_0.empty() || rendezvous.ask_pmi) {
    options.way = RendezvousOptions::Way::known_host;
    options.ports = rendezvous.ports_of_node_0;
    options.job_id = rendezvous.engine_id;
    if (rendezvous.ask_pmi) {
      const auto ports = ports_of_job(node.pmi_job);
      options.host = node.pmi_host;
      options.job_id = node.pmi_job;
      options.ports.assign(ports.begin(), ports.end());
    }
    options.port = options.ports.front();
    options.is_host = rendezvous.node_rank == 0;
    return options;
  }
  options.port = rendezvous.endpoint_port.value_or(0);
  // In torchrun's static backend node rank 0 is the host, wherever the endpoint's address leads.
  options.is_host = is_static ? std::optional<bool>(rendezvous.node_rank == 0) : rendezvous.is_host;
  return options;
}

}  // namespace muster
