#include "agent/job/announcer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "agent/job/rendezvous_options.h"
#include "agent/report/failure_wire.h"

namespace muster {

bool Announcer::shares_console() const {
  const RendezvousSpec& nodes = spec_.rendezvous;
  return is_coordinated(nodes) && spec_.engine.one_console &&
         (nodes.ask_pmi || !nodes.ports_of_node_0.empty());
}

// Node rank 0 prints. In a job of fixed size it is the host, so it is there as long as any node
// hears anything of the job; in an elastic one it is in the newest round.
bool Announcer::another_says_it(const membership::Round& round) const {
  const RendezvousSpec& nodes = spec_.rendezvous;
  if (!shares_console()) return false;
  if (nodes.nnodes_min == nodes.nnodes_max) return nodes.node_rank.value_or(0) > 0;
  return round.epoch > 0 && round.node_rank > 0;
}

bool Announcer::another_says_the_end(const membership::Round& round, const JobReport& report,
                                     const HeardEnd& heard) const {
  const bool failed = report.end == JobEnd::stopped && !report.failed_in_stop.empty();
  if (report.end == JobEnd::unkillable || failed || !shares_console()) return false;
  const bool is_elastic = spec_.rendezvous.nnodes_min < spec_.rendezvous.nnodes_max;
  if (heard.from_host && is_elastic && heard.teller >= 0)
    return round.epoch == 0 || round.node_rank != heard.teller;
  const bool all_know = heard.from_host || (heard.by_engine && report.killed_ranks.empty());
  return all_know && another_says_it(round);
}

void Announcer::say_restart(Duration delay) {
  if (!failed_) return;
  const int left = std::exchange(failed_, std::nullopt)->restarts_left;
  const std::string line = record_.restart_line(left, delay);
  if (!line.empty()) job_.say(line);
}

void Announcer::say_job_restart(const membership::Round& round) {
  failed_.reset();
  if (!round.before || job_.attempt() < 0) return;
  const Result<JudgedAttempt> told = decode_verdict(round.before->detail);
  record_.take_verdict(told ? *told : verdict_in_short(*round.before));
  const int left = std::max(0, spec_.max_restarts - round.restarts);
  const std::string line = record_.restart_line(left, Duration{0});
  if (!line.empty() && !another_says_it(round)) job_.say(line);
}

}  // namespace muster
