#include "launcher/engines/lone_world.h"

#include <fmt/format.h>

#include "rendezvous/base/contract.h"

namespace muster {
namespace {

std::string count_text(int count, std::string_view one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : one.ends_with('s') ? "es" : "s");
}

std::string_view known_or(const std::string& text, std::string_view placeholder) {
  return text.empty() ? placeholder : std::string_view(text);
}

// How the nodes find each other: by numbers if each has one, else by what is the same on all.
std::string rendezvous_flags(const EngineFacts& facts) {
  if (facts.nodes == 1) return "";
  const std::string nodes = facts.nodes > 0 ? fmt::format("{}", facts.nodes) : "N";
  const int port = facts.port > 0 ? facts.port : facts.node_rank.empty() ? kC10dPort : kStaticPort;
  if (!facts.node_rank.empty()) {
    return fmt::format(" --nnodes {} --node-rank {} --master-addr {} --master-port {}", nodes,
                       facts.node_rank, known_or(facts.first_host, "HOST"), port);
  }
  return fmt::format(" --nnodes {} --rdzv-backend c10d --rdzv-endpoint {}:{} --rdzv-id {}", nodes,
                     known_or(facts.first_host, "HOST"), port, known_or(facts.job_id, "ID"));
}

bool one_per_node(const EngineFacts& facts) {
  return facts.here == 1 && (facts.nodes == 0 || facts.nodes == facts.processes);
}

std::string worker_flag(const EngineFacts& facts, bool workers_given) {
  if (workers_given || one_per_node(facts)) return "";
  const bool same_everywhere = facts.here > 0 && facts.here * facts.nodes == facts.processes;
  return " --nproc-per-node " + (same_everywhere ? fmt::format("{}", facts.here) : "N");
}

// For facts that do not say whether there are other pods.
LoneWorld perhaps_alone(const EngineFacts& facts) {
  return {false, fmt::format("{}: if {} has more pods than this one, each of them is a job of its "
                             "own without --nnodes: give{}; --nnodes 1 says that this is meant",
                             facts.evidence, facts.engine, rendezvous_flags(facts))};
}

LoneWorld batch_script(const EngineFacts& facts) {
  return {false, fmt::format("{} runs this on the first of {} only ({}): start it by {} with{}; "
                             "--nnodes 1 says that one node is meant",
                             facts.engine, count_text(facts.nodes, "node"), facts.evidence,
                             facts.one_per_node, rendezvous_flags(facts))};
}

}  // namespace

LoneWorld judge_lone_world(const EngineFacts& facts, bool workers_given) {
  if (facts.processes == 1) return facts.at_least ? perhaps_alone(facts) : batch_script(facts);
  const std::string flags = rendezvous_flags(facts) + worker_flag(facts, workers_given);
  std::string how = "give";
  if (!one_per_node(facts)) {
    how = fmt::format("start one muster a node{}{}",
                      facts.one_per_node.empty() ? "" : fmt::format(" ({})", facts.one_per_node),
                      flags.empty() ? "" : " with");
  }
  return {true,
          fmt::format("{} started {}{}{} ({}), and without --nnodes each of them would be a job of "
                      "its own: {}{}; --nnodes 1 says that this is meant",
                      facts.engine, facts.at_least ? "at least " : "",
                      count_text(facts.processes, "process"),
                      facts.nodes > 0 ? " on " + count_text(facts.nodes, "node") : "",
                      facts.evidence, how, flags)};
}

}  // namespace muster
